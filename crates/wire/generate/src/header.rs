//! A C header of formats with its comments, as far as tables need it: enumerators, fields and numeric constants, one to
//! a line, each under its comment. bindgen knows offsets and values, but not which comment belongs to a `#define`.

use std::mem;

/// A declaration with the comment above it.
pub struct Entry {
    /// Text of a standalone comment "From A to B." above, without "From " and the period; else empty.
    pub direction: String,
    /// Words of the comment, with one space between them; empty if there is none.
    pub comment: String,
    /// Name of the enumerator, field or constant.
    pub name: String,
    /// Type of a field; else empty.
    pub kind: String,
    /// Value, or length of an array; empty for a field that is no array.
    pub value: String,
}

/// An enum, a structure or a union.
pub struct Block {
    /// As in C, `enum sb_op`.
    pub name: String,
    /// Its enumerators, fields or members.
    pub entries: Vec<Entry>,
}

/// A field's place.
pub struct Field<'a> {
    /// In bytes from the structure's beginning.
    pub offset: usize,
    /// In bytes.
    pub len: usize,
    /// With the names of the structures that it is in, `session.pool`.
    pub name: String,
    /// Words of its comment.
    pub comment: &'a str,
}

/// The declarations of one header or more.
#[derive(Default)]
pub struct Header {
    /// Enums, structures and unions.
    pub blocks: Vec<Block>,
    /// `#define`s that have a value.
    pub constants: Vec<Entry>,
}

impl Header {
    /// Adds a header's declarations.
    pub fn read(&mut self, text: &str) {
        let mut lines = text.lines().map(str::trim);
        let mut direction = String::new();
        let mut comment: Vec<String> = Vec::new();
        let mut block: Option<Block> = None;
        while let Some(line) = lines.next() {
            if let Some(begin) = line.strip_prefix("/*") {
                comment = comment_lines(begin, &mut lines);
                continue;
            }
            let code = line.split("/*").next().unwrap_or(line).trim();
            if code.is_empty() {
                if let Some(text) = comment.first().and_then(|text| text.strip_prefix("From ")) {
                    direction = text.trim_end_matches('.').to_owned();
                }
                comment.clear();
                continue;
            }
            let comment = mem::take(&mut comment);
            let entry = |kind: &str, name: &str, value: &str| Entry {
                direction: direction.clone(),
                comment: comment.join(" "),
                name: name.to_owned(),
                kind: kind.to_owned(),
                value: value.to_owned(),
            };
            if let Some(constant) = code.strip_prefix("#define ") {
                let constant = constant.split_once(' ');
                self.constants.extend(constant.map(|(name, value)| entry("", name, value.trim())));
            } else if let Some(name) = code.strip_suffix(" {") {
                block = Some(Block { name: name.to_owned(), entries: Vec::new() });
                direction.clear();
            } else if code.starts_with('}') {
                self.blocks.extend(block.take());
            } else if let Some(block) = &mut block {
                block.entries.push(match code.split_once(" = ") {
                    Some((name, value)) => entry("", name, value.trim_end_matches(',')),
                    None => {
                        let (kind, field) =
                            code.trim_end_matches(';').rsplit_once(' ').expect("type, then name");
                        let (name, len) = field.split_once('[').unwrap_or((field, ""));
                        entry(kind, name, len.trim_end_matches(']'))
                    }
                });
            }
        }
    }

    /// The enum, structure or union of this name, such as `enum sb_op`.
    pub fn block(&self, name: &str) -> &Block {
        self.blocks
            .iter()
            .find(|block| block.name == name)
            .unwrap_or_else(|| panic!("no {name} in the headers"))
    }

    /// The fields of a structure. One that is a structure itself and has no comment stands for its own fields.
    pub fn fields(&self, name: &str) -> Vec<Field<'_>> {
        let mut fields = Vec::new();
        self.add_fields(name, "", 0, &mut fields);
        fields
    }

    fn add_fields<'a>(&'a self, name: &str, prefix: &str, start: usize, out: &mut Vec<Field<'a>>) {
        let mut offset = start;
        for entry in &self.block(name).entries {
            let len = self.len(entry);
            let aligned = scalar(&entry.kind).is_none_or(|size| offset.is_multiple_of(size));
            assert!(aligned, "{name} has padding before {}", entry.name);
            if entry.kind.starts_with("struct ") && entry.comment.is_empty() {
                self.add_fields(&entry.kind, &format!("{prefix}{}.", entry.name), offset, out);
            } else {
                let name = format!("{prefix}{}", entry.name);
                out.push(Field { offset, len, name, comment: &entry.comment });
            }
            offset += len;
        }
    }

    /// Bytes that a field takes.
    fn len(&self, field: &Entry) -> usize {
        let one = scalar(&field.kind).unwrap_or_else(|| {
            let lengths = self.block(&field.kind).entries.iter().map(|field| self.len(field));
            if field.kind.starts_with("union ") { lengths.max().unwrap_or(0) } else { lengths.sum() }
        });
        one * if field.value.is_empty() { 1 } else { self.number(&field.value) as usize }
    }

    /// A number, or the value of the constant of that name.
    pub fn number(&self, text: &str) -> u32 {
        let constant = self.constants.iter().find(|constant| constant.name == text);
        let text = constant.map_or(text, |constant| &constant.value);
        let number = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.unwrap_or_else(|_| panic!("{text} is no number"))
    }
}

/// Bytes of a number of this type; None for a structure or union.
fn scalar(kind: &str) -> Option<usize> {
    match kind {
        "__u8" => Some(1),
        "__be16" | "__u16" => Some(2),
        "__be32" | "__u32" => Some(4),
        "__be64" | "__u64" => Some(8),
        _ => None,
    }
}

/// The lines of a comment, of which `begin` is the rest of the first one.
fn comment_lines<'a>(begin: &'a str, rest: &mut impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = begin;
    loop {
        let text = line.trim_end_matches("*/").trim_start_matches('*').trim_end();
        if !text.trim().is_empty() || line.starts_with('*') {
            lines.push(text.strip_prefix(' ').unwrap_or(text).to_owned());
        }
        if line.ends_with("*/") {
            break;
        }
        line = rest.next().expect("the comment ends");
    }
    lines.retain(|line| !line.is_empty());
    lines
}
