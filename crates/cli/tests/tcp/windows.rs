//! How much may be on its way, and in packets of which size.

use std::time::{Duration, Instant};

use switchback_lab::Impairment;

use super::client::{Connection, Segment, Stack, Syn};
use super::common::document::block;
use super::common::{Cluster, PATIENCE, Plan, Result};
use super::{port, show, side_by_side};

/// Some round trips for a small window.
const DOCUMENT: usize = 40_000;
const GET: &[u8] = b"GET /document HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn windows() -> Result {
    show(
        Plan::default(),
        &[
            ("a window of nothing", a_window_of_nothing),
            ("window scales", window_scales),
            ("segment sizes", segment_sizes),
        ],
    )
}

fn add_document(cluster: &Cluster) -> Result<Vec<u8>> {
    let document = block(5)[..DOCUMENT].to_vec();
    cluster.lab.add_document("document", &document)?;
    Ok(document)
}

/// Reads a response to its end and acknowledges when nothing more comes; returns the most that came at once,
/// and the largest packet's data.
fn read_in_windows(connection: &mut Connection, pause: Duration) -> Result<(usize, usize)> {
    let (mut most, mut largest) = (0, 0);
    let begun = Instant::now();
    let len =
        |c: &Connection| c.received.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4 + DOCUMENT);
    while len(connection).is_none_or(|len| connection.received.len() < len) {
        if begun.elapsed() > PATIENCE {
            return Err(format!("only {} bytes", connection.received.len()).into());
        }
        if !connection.received.is_empty() && !connection.received.starts_with(b"HTTP/1.1 200 ") {
            return Err(String::from_utf8_lossy(&connection.received).into_owned().into());
        }
        let before = connection.expected;
        let deadline = Instant::now() + pause;
        while let Some(segment) = connection.receive(deadline)? {
            largest = largest.max(segment.data.len());
            connection.take(&segment);
        }
        most = most.max(connection.expected.wrapping_sub(before) as usize);
        connection.acknowledge()?;
    }
    Ok((most, largest))
}

/// The server stops, asks whether it may go on, and goes on when it may.
fn a_window_of_nothing(cluster: &Cluster, stack: &Stack) -> Result {
    let document = add_document(cluster)?;
    for v6 in [false, true] {
        let mut connection = stack.connect(v6, port(), Syn { wscale: None, ..Syn::USUAL })?;
        connection.window = 4000;
        connection.write(GET)?;
        let deadline = Instant::now() + PATIENCE;
        while connection.received.len() < 2500 {
            let segment = connection.receive(deadline)?.ok_or("no data")?;
            connection.take(&segment);
        }
        connection.window = 0;
        connection.acknowledge()?;
        // What is on its way still comes, then probes: packets without news.
        let mut probes = 0;
        while probes < 3 {
            let segment = connection.receive(deadline)?.ok_or("no probe")?;
            connection.take(&segment);
            probes += u32::from(segment.data.is_empty() || segment.seq != connection.expected);
            connection.acknowledge()?;
        }
        assert!(connection.received.len() <= 4000, "{} bytes into no window", connection.received.len());
        connection.window = u16::MAX;
        connection.acknowledge()?;
        connection.expect(200, &document)?;
        // And a request, with no room for its response.
        connection.window = 0;
        connection.write(GET)?;
        let taken = connection.expected;
        let stalled = connection.read_for(Duration::from_millis(700))?;
        // A slow machine may still get the first response's data again.
        let is_news = |segment: &&Segment| segment.seq.wrapping_sub(taken).cast_signed() >= 0;
        let news: Vec<_> = stalled.iter().filter(is_news).collect();
        assert!(news.iter().all(|segment| segment.data.len() <= 1), "{news:?}");
        connection.window = u16::MAX;
        connection.acknowledge()?;
        connection.expect(200, &document)?;
        connection.close()?;
    }
    Ok(())
}

/// Each scale is understood: the server sends as much as the window allows, and no more.
fn window_scales(cluster: &Cluster, stack: &Stack) -> Result {
    const WINDOW: usize = 4096;
    let document = add_document(cluster)?;
    let scales = std::iter::once(None).chain((0..=14).map(Some));
    let cases: Vec<_> = scales.flat_map(|wscale| [(wscale, false), (wscale, true)]).collect();
    side_by_side(&cases, |&(wscale, timestamps)| {
        let syn = Syn { wscale, timestamps, ..Syn::USUAL };
        let mut connection = stack.connect(wscale.unwrap_or(0) % 2 == 1, port(), syn)?;
        // Without timestamps there is room for two scales in the cookie.
        let scale = wscale.filter(|scale| timestamps || [7, 8].contains(scale)).unwrap_or(0);
        connection.window = (WINDOW >> scale).max(1) as u16;
        let window = usize::from(connection.window) << scale;
        connection.write(GET)?;
        // A server sends less than a packet only after a while (silly window syndrome).
        let (most, _) = read_in_windows(&mut connection, Duration::from_millis(10))?;
        // The congestion window begins with ten packets.
        let usual = window.min(10 * 1400);
        assert!(most <= window && most >= usual / 2, "{most} bytes of {window}, {syn:?}");
        connection.expect(200, &document)?;
        connection.reset()
    })
}

/// No packet is larger than the client takes, nor much smaller.
fn segment_sizes(cluster: &Cluster, stack: &Stack) -> Result {
    let document = add_document(cluster)?;
    // So that nothing merges packets on the way.
    let impaired = cluster.client().impair(Impairment::default())?;
    let mut cases = Vec::new();
    for v6 in [false, true] {
        // RFC 9293 section 3.7.1.
        let absent = if v6 { 1220 } else { 536 };
        let offers = [None, Some(536), Some(900), Some(1220), Some(1300), Some(1380), Some(1460), Some(9000)];
        for mss in offers.into_iter().filter(|mss| mss.is_none_or(|mss| mss >= absent)) {
            cases.extend([false, true].map(|timestamps| (v6, absent, mss, timestamps)));
        }
    }
    side_by_side(&cases, |&(v6, absent, mss, timestamps)| {
        let fits = if v6 { 1440 } else { 1460 };
        let syn = Syn { mss, timestamps, ..Syn::USUAL };
        let mut connection = stack.connect(v6, port(), syn)?;
        connection.write(GET)?;
        let read = read_in_windows(&mut connection, Duration::from_millis(10));
        let (_, largest) = read.map_err(|error| format!("IPv6 {v6}, {syn:?}: {error}"))?;
        let offered = usize::from(mss.unwrap_or(absent));
        // Without timestamps there is room for few sizes in the cookie.
        let rounded = [1380, 1220, 536].into_iter().find(|mss| *mss <= offered);
        let expected = match timestamps {
            true => offered.min(fits) - 12,
            false => rounded.ok_or("below all")?.min(fits),
        };
        assert_eq!(largest, expected, "IPv6 {v6}, {syn:?}");
        connection.expect(200, &document)?;
        connection.reset()
    })?;
    impaired.heal()?;
    Ok(())
}
