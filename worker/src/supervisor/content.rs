//! A decoded message: its tasks, and the encoded bytes of each.

use std::{ptr, sync::OnceLock};

use gpufleet_schema::{Batch, Encoding, Task};

#[derive(Debug)]
pub(super) struct Content<'a, 'b> {
    pub(super) encoding: Encoding,
    pub(super) tasks: &'b Batch<Task<'a>>,
    body: &'b [u8],
    /// Computed on first use, because most messages have no job that is published again.
    originals: OnceLock<Vec<&'b [u8]>>,
}

impl<'a, 'b> Content<'a, 'b> {
    pub(super) fn new(body: &'b [u8], encoding: Encoding, tasks: &'b Batch<Task<'a>>) -> Self {
        Self { encoding, tasks, body, originals: OnceLock::new() }
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self.tasks, Batch::Many(_))
    }

    /// The original bytes of a task. Encoding it again could exceed the size of a message, because numbers have several encodings.
    pub(super) fn of(&self, task: &Task<'_>) -> &'b [u8] {
        let originals = self.originals.get_or_init(|| self.encoding.items(self.body));
        let index = self.tasks.iter().position(|of_all| ptr::eq(ptr::from_ref(of_all).cast(), task));
        originals[index.expect("it is one of the message's tasks")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_as_it_came_alone_or_in_a_list() {
        let task = |id: u32| {
            format!(
                r#"{{ "version": 1, "job_id": "0190a5b8-7c00-7000-8000-00000000000{id}", "program": {{"ptx": "],"}}, "new": [1e1] }}"#
            )
        };
        let list = format!("[{},\n {}]", task(1), task(2));
        for (body, expected) in [(task(1), vec![task(1)]), (list, vec![task(1), task(2)])] {
            let tasks = Encoding::Json.decode_tasks(body.as_bytes()).unwrap();
            let content = Content::new(body.as_bytes(), Encoding::Json, &tasks);
            let found: Vec<_> = tasks.iter().map(|task| str::from_utf8(content.of(task)).unwrap()).collect();
            assert_eq!(found, expected);
        }
    }
}
