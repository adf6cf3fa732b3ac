//! What README, CONTRIBUTING and the pages in docs say in code: blocks, and spans within the text.

use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// How a paragraph before a block begins that says why no test runs what is in the block.
const NOT_RUN: &str = "Not run by a test: ";
/// Languages of blocks that are no commands.
const NO_COMMANDS: [&str; 5] = ["toml", "yaml", "json", "ini", "text"];

/// Code in a document.
#[derive(Clone, Debug)]
pub struct Code {
    /// The document, from the top of the repository.
    pub file: String,
    /// Where it begins, from 1.
    pub line: usize,
    pub text: String,
    /// Of a block its language, empty if it says none; None within text.
    pub language: Option<String>,
    /// Why no test runs it, if the document says so.
    pub not_run: Option<String>,
}

impl Code {
    /// Whether it is a block of commands.
    pub fn is_commands(&self) -> bool {
        self.language.as_deref().is_some_and(|language| !NO_COMMANDS.contains(&language))
    }
}

/// The top of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All code in all documents, in the order of the documents.
pub fn all_code() -> Vec<Code> {
    let top = repository();
    let pages = fs::read_dir(top.join("docs")).expect("the documents are there");
    let pages = pages.map(|page| page.expect("the directory can be read").file_name());
    let pages = pages.filter_map(|name| name.into_string().ok()).filter(|name| name.ends_with(".md"));
    let mut files: Vec<String> = pages.map(|name| format!("docs/{name}")).collect();
    files.extend(["README.md", "CONTRIBUTING.md"].map(str::to_owned));
    files.sort();
    let text = |file: &String| fs::read_to_string(top.join(file)).expect("the document can be read");
    files.iter().flat_map(|file| code_of(file, &text(file))).collect()
}

fn code_of(file: &str, text: &str) -> Vec<Code> {
    let mut all = Vec::new();
    let mut block: Option<Code> = None;
    // The paragraph that has just ended, or that we are in.
    let mut paragraph = String::new();
    for (event, place) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let line = text[..place.start].matches('\n').count() + 1;
        let code = |text: String| Code { file: file.to_owned(), line, text, language: None, not_run: None };
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.into_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                let why = paragraph.strip_prefix(NOT_RUN);
                let not_run = why.map(|why| why.trim_end_matches('.').to_owned());
                // The first line is the fence.
                let code = Code { line: line + 1, ..code(String::new()) };
                block = Some(Code { language: Some(language), not_run, ..code });
            }
            Event::End(TagEnd::CodeBlock) => {
                all.extend(block.take());
                paragraph.clear();
            }
            Event::Start(Tag::Emphasis | Tag::Strong | Tag::Link { .. }) => {}
            Event::Start(_) => paragraph.clear(),
            Event::Text(words) => match &mut block {
                Some(block) => block.text.push_str(&words),
                None => paragraph.push_str(&words),
            },
            Event::SoftBreak => paragraph.push(' '),
            Event::Code(words) => {
                paragraph.push_str(&words);
                all.push(code(words.into_string()));
            }
            _ => {}
        }
    }
    all
}
