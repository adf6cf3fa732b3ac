//! Progress of an experiment: a bar on a terminal, numbered lines elsewhere.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressStyle};
use switchback_experiments::Progress;

const STYLE: &str = "{prefix} {bar:40} {pos} of {len} loads, some {eta} left";

/// The progress of one experiment on stderr.
pub struct Shown {
    expected: usize,
    seen: usize,
    /// The bar; None without a terminal.
    bar: Option<ProgressBar>,
}

impl Shown {
    /// Progress of the experiment with this name.
    pub fn new(name: &'static str) -> Shown {
        let style = ProgressStyle::with_template(STYLE).expect("the template is well-formed");
        let bar = || ProgressBar::no_length().with_style(style).with_prefix(name);
        Shown { expected: 0, seen: 0, bar: stderr().is_terminal().then(bar) }
    }
}

impl Progress for Shown {
    fn expect(&mut self, loads: usize) {
        self.expected = loads;
        if let Some(bar) = &self.bar {
            bar.set_length(loads as u64);
            bar.tick();
        }
    }

    fn loaded(&mut self, line: &str) {
        self.seen += 1;
        let (seen, expected) = (self.seen, self.expected);
        let width = expected.to_string().len();
        let line = format!("[{seen:>width$}/{expected}] {line}");
        match &self.bar {
            Some(bar) => {
                bar.println(line);
                bar.inc(1);
            }
            None => eprintln!("{line}"),
        }
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
