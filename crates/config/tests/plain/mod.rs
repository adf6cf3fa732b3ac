//! Messages are in the words of the file's format, not in those of Rust and serde.

/// Words of Rust's types and of serde's messages.
const RUST: [&str; 13] = [
    "sequence", "struct", "variant", "enum", "newtype", "map", "tuple", "unit", "i64", "u32", "u64", "f64",
    "bool",
];

/// A message has no word of Rust outside quotes, in which it repeats the file.
pub fn check(message: &str) {
    let outside = message.split('"').step_by(2).collect::<Vec<_>>().concat();
    let word = outside.split(|c: char| !c.is_alphanumeric()).find(|word| RUST.contains(word));
    assert_eq!(word, None, "{message}");
    assert!(!outside.contains("invalid type"), "{message}");
}
