//! Drawings of an invented switch, in terminals of several sizes.

#[path = "../../../admin/tests/made_up/mod.rs"]
mod made_up;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};

use super::*;

/// A view after ten seconds of running.
fn view(nodes: usize, known: bool) -> View {
    let (mut history, now) = (History::default(), Instant::now());
    for second in 0..=10 {
        let at = Duration::from_secs(second);
        history.push(now + at, made_up::switch(nodes, known, at));
    }
    history.view().unwrap()
}

fn drawn(app: &App, (width, height): (u16, u16)) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(frame, app)).unwrap();
    let buffer = terminal.backend().buffer();
    let letters: Vec<&str> = buffer.content.iter().map(|cell| cell.symbol()).collect();
    letters.chunks(usize::from(width)).map(|line| line.concat().trim_end().to_owned()).collect()
}

fn press(app: &mut App, codes: &[KeyCode]) {
    codes.iter().for_each(|code| app.on(&Event::Key(KeyEvent::new(*code, KeyModifiers::NONE))));
}

/// The names of the shown nodes, from the top.
fn names(lines: &[String]) -> Vec<&str> {
    lines.iter().filter_map(|line| line.split(' ').next().filter(|word| word.starts_with("web"))).collect()
}

fn contains(lines: &[String], words: &[&str]) -> bool {
    lines.iter().any(|line| {
        let mut rest = line.as_str();
        words.iter().all(|word| rest.split_once(word).map(|(_, after)| rest = after).is_some())
    })
}

#[test]
fn all_of_it_in_a_wide_terminal() {
    let lines = drawn(&App::new(view(5, true)), (120, 40));
    for words in [
        &["switchback", "switch, up 1 h 2 min, eth0 (native XDP)", "? help", "q end"][..],
        &["req/s", "resp/s", "Mbit/s back", "conns", "waiting", "failed/s"],
        &["SERVICE", "VIPS", "REQ/S", "REQUESTS"],
        &["shop", "192.0.2.100:80, [2001:db8::100]:80"],
        &[
            "NODE", "STATE", "REQ/S", "RESP/S", "BACK", "FAIL/S", "FLIGHT", "CONNS", "QUEUE", "CPU",
            "1ST BYTE",
        ],
        &["web1", "up", "Mbit/s", "/511", "%", "420 us"],
        &["web2 drains:", "connections left,", "in flight"],
        &["warning: switch edge2 has another configuration (1a2b3c4d, here 9f8e7d6c): copy the file"],
        &["SWITCH", "STATE", "VERSION", "CONFIG", "HEARD BY", "TAKEN OVER"],
        &["edge1", "serving, this machine", "0.1.0", "9f8e7d6c", "5 of 5 nodes", "1234"],
        &["edge2", "withdrawn", "1a2b3c4d"],
        &["edge3", "silent for 1 min", "0 of 5 nodes"],
        &["edge4", "unknown", "-"],
        &["QUEUED P50", "1ST BYTE P50", "WHOLE P50"],
        &["shop", "web", "us", "ms", "ms"],
        &["PER SECOND", "TOTAL", "ERROR"],
        &["answered 503 by the switch"],
    ] {
        assert!(contains(&lines, words), "{words:?} are not in\n{}", lines.join("\n"));
    }
    assert_eq!(names(&lines), ["web1", "web2", "web3", "web4", "web5", "web2"], "and the drain");
}

#[test]
fn what_is_not_known_is_a_dash() {
    let lines = drawn(&App::new(view(1, false)), (100, 30));
    assert!(contains(&lines, &["- resp/s", "- back"]), "{}", lines.join("\n"));
    assert!(!contains(&lines, &["P50"]), "no latencies");
}

/// Columns are dropped from the right and tables from the bottom; the nodes stay.
#[test]
fn little_room_is_for_the_nodes() {
    let app = App::new(view(40, true));
    let small = drawn(&app, (80, 24));
    let titles = |lines: &[String]| lines.iter().find(|line| line.starts_with("NODE")).cloned().unwrap();
    let words: Vec<String> = titles(&small).split_whitespace().map(str::to_owned).collect();
    assert_eq!(words, ["NODE", "STATE", "REQ/S", "RESP/S", "BACK", "FAIL/S", "QUEUE"]);
    assert!(names(&small).len() >= 8, "{}", small.join("\n"));
    let tiny = drawn(&app, (40, 8));
    assert!(contains(&tiny, &["web1", "up"]), "{}", tiny.join("\n"));
    assert!(contains(&tiny, &["0 above,", "below"]), "{}", tiny.join("\n"));
    for size in [(1, 1), (2, 40), (200, 2), (14, 5)] {
        drawn(&app, size);
    }
}

#[test]
fn keys_sort_and_scroll() {
    let mut app = App::new(view(40, true));
    let size = (110, 30);
    assert_eq!(names(&drawn(&app, size))[0], "web1");
    press(&mut app, &[KeyCode::Down, KeyCode::Down]);
    assert_eq!(names(&drawn(&app, size))[0], "web3");
    press(&mut app, &[KeyCode::End]);
    let last = drawn(&app, size);
    assert!(names(&last).contains(&"web40") && contains(&last, &["above, 0 below"]), "{}", last.join("\n"));
    press(&mut app, &[KeyCode::Home, KeyCode::Right]);
    assert_eq!(names(&drawn(&app, size))[0], "web9", "by name, downwards");
    press(&mut app, &[KeyCode::Char('r')]);
    assert_eq!(names(&drawn(&app, size))[0], "web1");
    // Left of the first column is the configuration's order, and left of that the last column.
    press(&mut app, &[KeyCode::Left, KeyCode::Left]);
    assert_eq!(app.sorted_by, Some(cells::COLUMNS.len() - 1));
    press(&mut app, &[KeyCode::Right]);
    assert_eq!(app.sorted_by, None);
    let sorted = (0..cells::COLUMNS.len()).all(|index| {
        press(&mut app, &[KeyCode::Right]);
        let compare = cells::COLUMNS[index].compare;
        app.nodes().windows(2).all(|pair| compare(pair[0], pair[1]).is_le())
    });
    assert!(sorted, "each column upwards");
}

#[test]
fn help_comes_and_goes() {
    let mut app = App::new(view(3, true));
    press(&mut app, &[KeyCode::Char('?')]);
    assert!(contains(&drawn(&app, (80, 24)), &["left, right", "the column to sort by"]));
    press(&mut app, &[KeyCode::Char('q')]);
    assert!(!app.is_over && !contains(&drawn(&app, (80, 24)), &["the column to sort by"]));
    press(&mut app, &[KeyCode::Char('q')]);
    assert!(app.is_over);
}

#[test]
fn a_switch_that_does_not_answer_is_told_and_what_was_known_stays() {
    let mut app = App::new(view(3, true));
    app.tell(Err("cannot talk to the daemon".to_owned()));
    let lines = drawn(&app, (100, 24));
    assert!(lines[0].contains("cannot talk to the daemon"), "{}", lines[0]);
    assert_eq!(names(&lines), ["web1", "web2", "web3"]);
    app.scroll = 2;
    app.tell(Ok(view(1, true)));
    assert_eq!((app.trouble.as_deref(), app.scroll), (None, 0));
}

#[test]
fn without_a_terminal_it_is_one_text() {
    let text = cells::plain(&view(5, true));
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for words in [
        &["switch, up 1 h 2 min, eth0 (native XDP)"][..],
        &[" req/s, ", " resp/s, ", " back, "],
        &["SERVICE", "VIPS", "REQ/S", "REQUESTS"],
        &["NODE", "STATE", "REQ/S", "1ST BYTE"],
        &["web2", "draining"],
        &["ERROR", "PER SECOND", "TOTAL"],
        &["web2 drains:"],
        &["SWITCH", "STATE", "VERSION", "CONFIG", "HEARD BY", "TAKEN OVER"],
        &["edge2", "withdrawn", "1a2b3c4d"],
        &["warning: switch edge2 has another configuration"],
    ] {
        assert!(contains(&lines, words), "{words:?} are not in\n{text}");
    }
    assert!(!text.contains('\x1b'));
}

#[test]
fn a_terminal_gets_nothing_that_it_would_obey() {
    let hostile = "a\u{1b}[2J\u{9b}31m\u{202e}b\u{2066}\u{200e}c\u{7f}";
    let mut view = view(5, true);
    view.nodes[0].name = hostile.to_owned();
    view.services[0].name = hostile.to_owned();
    let plain = printable(&cells::plain(&view)).into_owned();
    assert!(plain.chars().all(|c| c == '\n' || switchback_access_log::escape::is_printable(c)), "{plain:?}");
    let mut app = App::new(view);
    app.tell(Err(hostile.to_owned()));
    let lines = drawn(&app, (120, 40));
    assert!(lines.concat().chars().all(switchback_access_log::escape::is_printable), "{lines:?}");
}
