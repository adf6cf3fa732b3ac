//! Prints `docs/metrics.md`.

fn main() {
    print!("{}", switchback_admin::metrics::reference());
}
