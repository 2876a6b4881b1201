//! A page of Markdown and its fenced code blocks.

use std::{fs, path::Path};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::mark::{Mark, page_reason};

#[derive(Debug)]
pub struct Page {
    /// The path relative to the repository's root.
    pub path: String,
    pub blocks: Vec<Block>,
    /// The reason why no block of this page is executed.
    pub not_executed: Option<String>,
}

#[derive(Debug)]
pub struct Block {
    /// The line of the opening fence.
    pub line: usize,
    pub language: String,
    pub text: String,
    pub mark: Option<Mark>,
    /// The number of headings before the block, which identifies its section.
    section: usize,
}

impl Page {
    pub fn parse(path: impl Into<String>, text: &str) -> Self {
        let mut page = Self { path: path.into(), blocks: Vec::new(), not_executed: None };
        let (mut section, mut comment, mut mark, mut block) = (0, String::new(), None, None);
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::HtmlBlock) => comment.clear(),
                Event::Html(html) => comment.push_str(&html),
                Event::End(TagEnd::HtmlBlock) => {
                    page.not_executed = page.not_executed.or_else(|| page_reason(&comment));
                    mark = Mark::parse(&comment);
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    let line = text[..range.start].matches('\n').count() + 1;
                    let language = info.split([',', ' ', '{']).next().unwrap_or_default().to_owned();
                    block = Some(Block { line, language, text: String::new(), mark: mark.take(), section });
                }
                Event::Text(part) => match &mut block {
                    Some(block) => block.text.push_str(&part),
                    None => mark = None,
                },
                Event::End(TagEnd::CodeBlock) => page.blocks.extend(block.take()),
                Event::Start(Tag::Heading { .. }) => {
                    section += 1;
                    mark = None;
                }
                _ => {}
            }
        }
        page
    }

    /// Returns whether the test follows the page as a reader does who has only the page: no command is repeated, and the only fleet is the
    /// page's own.
    pub fn is_literal(&self) -> bool {
        self.path == "README.md" || self.path.starts_with("docs/src/tutorials/")
    }

    /// Executes the page if its mark says that this command does it.
    pub fn execute_for(&mut self, command: &str) {
        self.not_executed.take_if(|reason| *reason == format!("`{command}` executes it"));
    }

    /// Returns whether the page starts a fleet of its own.
    pub fn starts_fleet(&self) -> bool {
        self.blocks.iter().any(|block| block.is_run() && block.text.contains("gpufleet local up"))
    }

    /// Returns the next block, if it is the output of this block's commands: an unmarked `text` or `json` block in the same section.
    pub fn printed_by(&self, index: usize) -> Option<&Block> {
        let (block, next) = (&self.blocks[index], self.blocks.get(index + 1)?);
        let is_output = matches!(next.language.as_str(), "text" | "json") && next.mark.is_none();
        (is_output && next.section == block.section).then_some(next)
    }
}

impl Block {
    /// Returns the output of a command in this block, as a block of its own.
    pub fn output(&self, text: &str) -> Self {
        Self { line: self.line, language: "text".to_owned(), text: text.to_owned(), mark: None, section: self.section }
    }

    pub fn exit_code(&self) -> i32 {
        if let Some(Mark::ExitsWith(code)) = self.mark { code } else { 0 }
    }

    /// Returns whether a program executes the block.
    pub fn is_run(&self) -> bool {
        let by_program = matches!(self.language.as_str(), "sh" | "bash" | "console" | "python" | "sql");
        by_program && !matches!(self.mark, Some(Mark::NotExecuted(_) | Mark::File(_)))
    }
}

/// Returns the README, then the pages of the site in the order of its table of contents.
pub fn all(root: &Path) -> Vec<Page> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let summary = read("docs/src/SUMMARY.md");
    let links = Parser::new(&summary).filter_map(|event| match event {
        Event::Start(Tag::Link { dest_url, .. }) => Some(format!("docs/src/{dest_url}")),
        _ => None,
    });
    let paths = std::iter::once("README.md".to_owned()).chain(links);
    paths.map(|path| Page::parse(&path, &read(&path))).collect()
}
