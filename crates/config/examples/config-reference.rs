//! Prints `docs/config-reference.md`.

fn main() {
    print!("{}", switchback_config::reference());
}
