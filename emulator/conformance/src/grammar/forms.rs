//! The forms that the chapters add.

use std::collections::HashMap;

use crate::recipe::{Form, Recipe};

/// All forms, grouped by case.
#[derive(Debug, Default)]
pub struct Grammar {
    pub(super) recipes: Vec<Recipe>,
    places: HashMap<String, usize>,
}

impl Grammar {
    pub(super) fn add(&mut self, form: Form) {
        let name = format!("{}/{}", form.mnemonic(), form.file.replace("::", "-"));
        match self.places.get(&name) {
            Some(place) => {
                let recipe = &mut self.recipes[*place];
                assert_eq!(recipe.forms[0].inputs, form.inputs, "forms of one case have the same inputs: {name}");
                assert_eq!(recipe.forms[0].texture, form.texture, "forms of one case have the same texture: {name}");
                recipe.forms.push(form);
            }
            None => {
                self.places.insert(name.clone(), self.recipes.len());
                self.recipes.push(Recipe { name, forms: vec![form] });
            }
        }
    }
}
