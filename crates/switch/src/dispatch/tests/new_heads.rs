//! Requests that their route changes.

use switchback_wire::message;
use switchback_wire::*;

use super::model::*;
use sb_op::*;
use sb_reason::*;

const ADDED: &str = "X-New: 1\r\n";

/// A switch whose route to `web` adds a field.
fn world() -> World {
    let line = "request_header.set = { name = \"X-New\", value = \"1\" }\n";
    World::of(&CONFIG.replacen("path = \"/web/\"\n", &format!("path = \"/web/\"\n{line}"), 1))
}

/// The request as its server gets it.
fn changed(path: &str) -> Vec<u8> {
    let request = get(path);
    [&request[..request.len() - 2], ADDED.as_bytes(), b"\r\n"].concat()
}

fn is_changed(sent: &ToNode, at: usize, path: &str) {
    let said = message::ToNode::read(&sent.option);
    let len = get(path).len();
    let Some(message::ToNode::Adopt { head, grown, .. }) = said else { panic!("{said:?}") };
    assert_eq!((usize::from(head), grown as usize), (len, ADDED.len()));
    assert_eq!((sent.option.version, sent.view().seq), (SB_VERSION_GROWN, ORIGIN + at));
    assert_eq!(sent.data(), changed(path));
}

#[test]
fn each_comes_with_an_adoption() {
    let mut world = world();
    let len = get("/web/a").len();
    let sent = world.client_packet(&data(0, 0, &get("/web/a")));
    assert_eq!(sent.len(), 1);
    is_changed(&sent[0], 0, "/web/a");
    assert!(world.answer(&sent[0], SB_OP_ADOPTED, SB_REASON_NONE).is_empty());
    assert_eq!(world.dispatcher.pending(), 0);
    let release = world.client_packet(&data(len as u32, 100, &get("/web/b")));
    assert_eq!((release.len(), release[0].op, release[0].node), (1, SB_OP_RELEASE, sent[0].node));
    let again = world.answer(&release[0], SB_OP_RELEASED, SB_REASON_NONE);
    assert_eq!((again.len(), again[0].node), (1, sent[0].node), "the same node");
    is_changed(&again[0], len, "/web/b");
}

/// A node of an earlier version would drop the adoption.
#[test]
fn they_go_to_nodes_that_know_their_version() {
    for newer in [None, Some(1), Some(2)] {
        let asked = |path: &str| {
            let mut world = world();
            for (last, pool) in [(1, "web"), (2, "web"), (3, "img")] {
                world.newest = if newer == Some(last) { SB_VERSION_GROWN } else { SB_VERSION_USUAL };
                world.report(node(last), pool, SB_REASON_NONE, (0, 511));
            }
            world.client_packet(&data(0, 0, &get(path)))
        };
        assert_eq!(asked("/web/a").first().map(|sent| sent.node), newer.map(node));
        assert_eq!(asked("/img/a").len(), 1, "others go anywhere");
    }
}
