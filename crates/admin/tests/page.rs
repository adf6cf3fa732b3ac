//! The page in a browser: what a made-up switch does is on it, in light and dark, on a phone, by keyboard.
//!
//! Pictures of it are in the build's directory `tmp`, `page-*.png`, to be looked at.

#[path = "../../cli/tests/common/browser.rs"]
mod browser;
mod made_up;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use browser::{Browser, Result};
use switchback_admin::Server;
use switchback_config::Admin;
use switchback_status::Status;

const DESK: (u32, u32) = (1280, 900);
const PHONE: (u32, u32) = (360, 800);
/// It has come and been drawn.
const DRAWN: &str = "document.querySelector('#connection').dataset.state === 'live'
    && document.querySelectorAll('#nodes tbody tr').length > 0
    && document.querySelector('#numbers dd').textContent !== 'not known'";

/// The address of a page with so many nodes.
fn page(nodes: usize, known: bool) -> Result<String> {
    let begun = Instant::now();
    let ask = move || vec![Ok(Status::Switch(Box::new(made_up::switch(nodes, known, begun.elapsed()))))];
    let server = Server::start(&Admin { listen: ([127, 0, 0, 1], 0).into(), ..Admin::default() }, true, ask)?;
    let address = server.address();
    // It serves as long as the process.
    std::mem::forget(server);
    Ok(format!("http://{address}/"))
}

fn start(test: &str) -> Result<Browser> {
    Browser::start(Command::new("sh"), &Path::new(env!("CARGO_TARGET_TMPDIR")).join(test))
}

fn keep(browser: &mut Browser, name: &str) -> Result {
    browser.screenshot(&Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}.png")))
}

fn text(browser: &mut Browser, selector: &str) -> Result<String> {
    let said = browser.eval(&format!("document.querySelector({selector:?}).innerText"))?;
    Ok(said.as_str().ok_or_else(|| format!("there is no {selector}"))?.to_owned())
}

#[test]
fn it_shows_what_the_switch_does() -> Result {
    let mut browser = start("shows")?;
    browser.look(DESK, false, false)?;
    browser.open(&page(5, true)?)?;
    browser.wait_for(DRAWN)?;
    let cluster = text(&mut browser, "#cluster")?;
    for words in ["clients", "switch", "web1", "web5", "requests/s", "responses/s", "bit/s back", "answers"] {
        assert!(cluster.contains(words), "{words:?} is not in {cluster}");
    }
    let title = browser.eval("document.getElementById('picture-title').textContent")?;
    assert!(title.as_str().is_some_and(|title| title.contains("straight to the clients")), "{title}");
    // As many lines to the nodes as from them, and those to the clients.
    assert_eq!(browser.eval("document.querySelectorAll('.edge.there').length")?, 6);
    assert_eq!(browser.eval("document.querySelectorAll('.edge.back').length")?, 7);
    let drains = text(&mut browser, "#drains")?;
    assert!(drains.contains("web2") && drains.contains("connections left"), "{drains}");
    let errors = text(&mut browser, "#errors")?;
    assert!(errors.contains("answered 503 by the switch") && !errors.contains("302"), "{errors}");
    let latency = text(&mut browser, "#latency")?;
    assert!(latency.contains("shop to web") && latency.contains("p99"), "{latency}");
    assert!(
        browser.eval("document.querySelectorAll('#latency .column[height]').length")?.as_u64() > Some(80)
    );
    let row = text(&mut browser, "#nodes tbody tr:nth-child(2)")?;
    assert!(row.contains("web2") && row.contains("draining"), "{row}");
    let switches = text(&mut browser, "#switches")?;
    for words in [
        "edge1 serving, this machine",
        "edge2 withdrawn",
        "edge3 silent for 1 min",
        "edge4 unknown",
        "5 of 5 nodes",
        "1,234",
    ] {
        assert!(switches.contains(words), "{words:?} is not in {switches}");
    }
    let pools = text(&mut browser, "#pools")?;
    assert!(
        pools.contains("web") && pools.contains("of 5 nodes") && pools.contains("web2 draining"),
        "{pools}"
    );
    let services = text(&mut browser, "#services")?;
    assert!(services.contains("/img/ -> img") && services.contains("[2001:db8::100]:80"), "{services}");
    assert!(services.contains("requests of each client: 50 in 1s"), "{services}");
    let events = text(&mut browser, "#events tbody tr:nth-child(1)")?;
    assert!(events.contains("2026-11-25 23:02:10") && events.contains("pool img has no node"), "{events}");
    assert!(text(&mut browser, "#warnings")?.contains("switch edge2 has another configuration"));
    keep(&mut browser, "desk-light")?;
    browser.look(DESK, true, false)?;
    keep(&mut browser, "desk-dark")?;
    browser.close()
}

#[test]
fn what_is_not_known_is_said_to_be_so() -> Result {
    let mut browser = start("unknown")?;
    browser.look(DESK, false, false)?;
    browser.open(&page(1, false)?)?;
    browser.wait_for(DRAWN)?;
    let shown = text(&mut browser, "main")?;
    assert!(
        shown.contains("responses: not known") && shown.contains("nothing is told of responses"),
        "{shown}"
    );
    assert!(!shown.contains("NaN") && !shown.contains("undefined") && !shown.contains("null"), "{shown}");
    assert_eq!(browser.eval("document.querySelectorAll('.edge.back.unknown').length")?, 2);
    assert_eq!(browser.eval("document.querySelector('#switches').hidden")?, true, "the file names none");
    keep(&mut browser, "one-node")?;
    browser.close()
}

#[test]
fn forty_nodes_fit_on_a_desk_and_on_a_phone() -> Result {
    let mut browser = start("forty")?;
    browser.open(&page(40, true)?)?;
    for (name, size, dark) in [("forty-desk", DESK, false), ("forty-phone", PHONE, true)] {
        browser.look(size, dark, false)?;
        browser.wait_for(DRAWN)?;
        browser.wait_for(&format!(
            "document.querySelector('#picture svg').viewBox.baseVal.width < {}",
            size.0
        ))?;
        assert_eq!(browser.eval("document.querySelectorAll('#picture .box').length")?, 40);
        let wide = browser.eval("document.documentElement.scrollWidth")?;
        assert!(wide.as_u64() <= Some(size.0.into()), "{wide} pixels in {}", size.0);
        // Nothing is cut off that has no room.
        let cut = browser.eval(
            "[...document.querySelectorAll('td, dd, dt, h1, h2, #connection')].filter((each) =>
                each.getClientRects().length > 0 && each.scrollWidth > each.clientWidth + 1)
                .map((each) => each.textContent).join('|')",
        )?;
        assert_eq!(cut, "");
        let outside = browser.eval(
            "(() => { const { right, left } = document.querySelector('#picture svg').getBoundingClientRect();
              return [...document.querySelectorAll('#picture text')].filter((each) => each.textContent &&
                (each.getBoundingClientRect().right > right + 1 || each.getBoundingClientRect().left < left - 1))
                .map((each) => each.textContent).join('|'); })()",
        )?;
        assert_eq!(outside, "");
        keep(&mut browser, name)?;
    }
    browser.close()
}

/// Everything that can be pressed is reached by Tab, shows that it is reached, and has a name.
#[test]
fn it_is_used_by_keyboard() -> Result {
    const FOCUSED: &str = "document.activeElement";
    let mut browser = start("keyboard")?;
    browser.look(DESK, false, false)?;
    browser.open(&page(5, true)?)?;
    browser.wait_for(DRAWN)?;
    let controls =
        browser.eval("document.querySelectorAll('a, button').length")?.as_u64().ok_or("no controls")?;
    let mut reached = Vec::new();
    for _ in 0..controls {
        browser.press("Tab")?;
        let outline = browser.eval(&format!("getComputedStyle({FOCUSED}).outlineStyle"))?;
        assert_eq!(outline, "solid");
        let name = format!("{FOCUSED}.getAttribute('aria-label') ?? {FOCUSED}.textContent");
        reached.push(browser.eval(&name)?.as_str().unwrap_or_default().trim().to_owned());
    }
    assert!(reached.iter().all(|name| !name.is_empty()), "{reached:?}");
    for name in ["To the table of nodes", "Theme: automatic. Change it", "accept queue", "metrics"] {
        assert!(reached.iter().any(|known| known == name), "{name:?} is not in {reached:?}");
    }

    // A column is sorted downwards, upwards, and not any more.
    let first = "document.querySelector('#nodes tbody .name').textContent";
    browser.eval("document.querySelectorAll('#nodes th button')[8].focus()")?;
    for (sort, node) in [("descending", "web5"), ("ascending", "web1"), ("none", "web1")] {
        browser.press("Enter")?;
        assert_eq!(
            browser.eval("document.querySelectorAll('#nodes th')[8].getAttribute('aria-sort')")?,
            sort
        );
        assert_eq!(browser.eval(first)?, node, "{sort}");
        assert_eq!(browser.eval(&format!("{FOCUSED}.textContent"))?, "CPU", "the focus stays");
    }

    let ground = "getComputedStyle(document.documentElement).backgroundColor";
    let light = browser.eval(ground)?;
    browser.eval("document.getElementById('theme').focus()")?;
    for (theme, is_light) in [("light", true), ("dark", false), ("automatic", true)] {
        browser.press("Enter")?;
        let label = browser.eval(&format!("{FOCUSED}.getAttribute('aria-label')"))?;
        assert_eq!(label, format!("Theme: {theme}. Change it"));
        assert_eq!(browser.eval(ground)? == light, is_light, "{theme}");
    }
    browser.close()
}

/// Contrasts as WCAG 2.1 counts them, for whatever text there is; and who wants no motion gets none.
#[test]
fn it_can_be_read_by_everybody() -> Result {
    const POOR: &str = "(() => {
        const luminance = (color) => {
            const parts = color.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
                .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
        };
        const ground = (element) => {
            for (let each = element; each; each = each.parentElement) {
                const color = getComputedStyle(each).backgroundColor;
                if (!color.startsWith('rgba(0, 0, 0, 0')) return color;
            }
        };
        const texts = [...document.querySelectorAll('body *')].filter((each) => each.getClientRects().length > 0
            && [...each.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim()));
        return texts.map((each) => {
            const style = getComputedStyle(each);
            const ink = each.closest('svg') ? style.fill : style.color;
            const pair = [luminance(ink), luminance(ground(each))].sort((a, b) => b - a);
            return [(pair[0] + 0.05) / (pair[1] + 0.05), each.textContent];
        }).filter(([contrast]) => contrast < 4.5).map(([contrast, text]) => `${contrast.toFixed(2)} ${text}`).join('|');
    })()";
    let mut browser = start("read")?;
    browser.open(&page(6, true)?)?;
    for dark in [false, true] {
        browser.look(DESK, dark, false)?;
        browser.wait_for(DRAWN)?;
        assert_eq!(browser.eval(POOR)?, "", "dark: {dark}");
    }
    let moves = "getComputedStyle(document.querySelector('#picture .pulse')).animationName";
    assert_eq!(browser.eval(moves)?, "flow");
    browser.look(DESK, false, true)?;
    assert_eq!(browser.eval(moves)?, "none");
    browser.close()
}

/// A daemon that does not answer is not the same as a page that has lost its switch.
#[test]
fn a_switch_that_does_not_answer_is_told() -> Result {
    static DEAD: AtomicBool = AtomicBool::new(false);
    let begun = Instant::now();
    let ask = move || match DEAD.load(Ordering::Relaxed) {
        true => vec![Err("no answer within a second".to_owned())],
        false => vec![Ok(Status::Switch(Box::new(made_up::switch(2, true, begun.elapsed()))))],
    };
    let server = Server::start(&Admin { listen: ([127, 0, 0, 1], 0).into(), ..Admin::default() }, true, ask)?;
    let mut browser = start("dead")?;
    browser.open(&format!("http://{}/", server.address()))?;
    browser.wait_for(DRAWN)?;
    DEAD.store(true, Ordering::Relaxed);
    browser.wait_for("document.querySelector('#connection').dataset.state === 'trouble'")?;
    let said = text(&mut browser, "#connection")?;
    assert_eq!(said, "the switch does not answer: no answer within a second");
    DEAD.store(false, Ordering::Relaxed);
    browser.wait_for(DRAWN)?;
    browser.close()
}
