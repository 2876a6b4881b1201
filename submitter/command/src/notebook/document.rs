//! Checks that a file is a notebook that papermill runs.

use std::{fs, path::Path};

use serde::{Deserialize, de::IgnoredAny};

use crate::complaint::Complaint;

/// The first version of the format whose notebooks have a list of cells.
const FORMAT_MIN: u64 = 4;

/// The parts of a notebook that papermill needs.
#[derive(Debug, Deserialize)]
struct Document {
    nbformat: u64,
    cells: Option<Vec<IgnoredAny>>,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    kernelspec: Option<Kernel>,
}

#[derive(Debug, Deserialize)]
struct Kernel {
    name: Option<String>,
}

/// Rejects a file that is no notebook, or that names no kernel although the command line names none either.
pub fn check(path: &Path, kernel: Option<&str>) -> Result<(), Complaint> {
    let shown = path.display();
    let bytes = fs::read(path).map_err(|error| {
        Complaint::bad_input(format!("failed to read {shown}: {error}")).hint("check the path of the notebook")
    })?;
    let no_notebook = |problem: &str| {
        Complaint::bad_input(format!("{shown} is not a Jupyter notebook: {problem}"))
            .hint("give a file such as analysis.ipynb")
    };
    let document: Document = serde_json::from_slice(&bytes).map_err(|error| no_notebook(&error.to_string()))?;
    if document.nbformat < FORMAT_MIN {
        let hint = "open and save it in Jupyter, or convert it: jupyter nbconvert --to notebook --nbformat 4 FILE";
        let found = document.nbformat;
        return Err(
            Complaint::bad_input(format!("{shown} has version {found} of the notebook format, not 4")).hint(hint)
        );
    }
    if document.cells.is_none() {
        return Err(no_notebook("it has no cells"));
    }
    match document.metadata.kernelspec.and_then(|kernel| kernel.name).as_deref().or(kernel) {
        Some(_) => Ok(()),
        None => {
            Err(Complaint::bad_input(format!("{shown} names no kernel")).hint("name one, such as --kernel python3"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str, kernel: Option<&str>) -> Option<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        let complaint = check(file.path(), kernel).err()?;
        assert!(complaint.hint.is_some(), "{complaint:?}");
        Some(complaint.message.replace(&file.path().display().to_string(), "FILE"))
    }

    #[test]
    fn a_notebook_of_version_4_with_a_kernel_is_accepted() {
        let named =
            r#"{"nbformat": 4, "nbformat_minor": 5, "cells": [{}], "metadata": {"kernelspec": {"name": "python3"}}}"#;
        assert_eq!(problem(named, None), None);
        let unnamed = r#"{"nbformat": 4, "cells": [], "metadata": {}}"#;
        assert_eq!(problem(unnamed, Some("python3")), None);
        assert_eq!(problem(unnamed, None).unwrap(), "FILE names no kernel");
    }

    #[test]
    fn a_file_that_is_no_notebook_is_refused_with_the_reason() {
        let refused = |text| problem(text, Some("python3")).unwrap();
        assert_eq!(refused("import os"), "FILE is not a Jupyter notebook: expected value at line 1 column 1");
        assert!(refused(r#"{"cells": []}"#).starts_with("FILE is not a Jupyter notebook: missing field `nbformat`"));
        assert_eq!(refused(r#"{"nbformat": 4}"#), "FILE is not a Jupyter notebook: it has no cells");
        assert!(refused(r#"{"nbformat": 4, "cells": {}}"#).contains("expected a sequence"));
        assert_eq!(refused(r#"{"nbformat": 3, "worksheets": []}"#), "FILE has version 3 of the notebook format, not 4");
        let missing = check(Path::new("no-such.ipynb"), None).unwrap_err();
        assert!(missing.message.starts_with("failed to read no-such.ipynb: "), "{}", missing.message);
    }
}
