//! The page of a made-up switch, to look at it without a cluster: `cargo run -p switchback-admin --example page-preview
//! 12` with so many nodes, `12 unknown` without facts about responses. Prints where it is.

#[path = "../tests/made_up/mod.rs"]
mod made_up;

use std::time::Instant;

use switchback_admin::Server;
use switchback_config::Admin;
use switchback_status::Status;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().collect();
    let nodes = words.get(1).map_or(Ok(5), |count| count.parse())?;
    let known = words.get(2).is_none_or(|word| word != "unknown");
    let begun = Instant::now();
    let ask = move || vec![Ok(Status::Switch(Box::new(made_up::switch(nodes, known, begun.elapsed()))))];
    let server = Server::start(&Admin { listen: ([127, 0, 0, 1], 0).into(), ..Admin::default() }, true, ask)?;
    println!("http://{}/", server.address());
    loop {
        std::thread::park();
    }
}
