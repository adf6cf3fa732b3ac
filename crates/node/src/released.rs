//! Flows that a draining node has released, across a restart of its agent. Until another node has such a flow, its state
//! may be known to nobody but this node and the switch that asked for the release, which may go next.
//!
//! They are in a file of `/run`, as the marks of commands are, and come back when the next agent has the same layout of
//! its maps.

use std::fs;
use std::io::{ErrorKind, Write};

use switchback_runtime::marks;
use switchback_runtime::{Doing, Result};
use switchback_wire::{bytes_of, read_from, sb_flow, sb_owned};

const NAME: &str = "released";
const FLOW: usize = size_of::<sb_flow>();
const RECORD: usize = FLOW + size_of::<sb_owned>();

/// A flow with its entry in the map `owned`.
pub(crate) type Released = (sb_flow, sb_owned);

/// Begins the file: the version of the program and the sizes of the structures.
fn header() -> Vec<u8> {
    format!("switchback {} {FLOW} {RECORD}\n", env!("CARGO_PKG_VERSION")).into_bytes()
}

/// Writes the file.
pub(crate) fn save(flows: &[Released]) -> Result<()> {
    if flows.is_empty() {
        return Ok(());
    }
    let path = marks::path(NAME)?;
    let written = marks::make_directory().and_then(|()| {
        let mut file = fs::File::create(&path)?;
        file.write_all(&encode(flows))
    });
    written.doing(|| format!("write {}", path.display()))
}

/// Reads the file and removes it. One of another version has nothing to say.
pub(crate) fn take() -> Result<Vec<Released>> {
    let path = marks::path(NAME)?;
    let read = match fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.doing(|| format!("read {}", path.display()))?,
    };
    fs::remove_file(&path).doing(|| format!("remove {}", path.display()))?;
    Ok(decode(&read).unwrap_or_default())
}

fn encode(flows: &[Released]) -> Vec<u8> {
    let mut bytes = header();
    for (flow, owned) in flows {
        bytes.extend_from_slice(bytes_of(flow));
        bytes.extend_from_slice(bytes_of(owned));
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<Vec<Released>> {
    let records = bytes.strip_prefix(&header()[..])?.chunks_exact(RECORD);
    records.map(|record| Some((read_from(record)?, read_from(&record[FLOW..])?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let flow = |port: u16| sb_flow { client_port: port.to_be(), ..Default::default() };
        let owned = |next: u32| sb_owned { next, ..Default::default() };
        let flows = [(flow(1), owned(7)), (flow(2), owned(8))];
        let read = decode(&encode(&flows)).unwrap();
        let said: Vec<_> = read.iter().map(|(flow, owned)| (flow.client_port.to_be(), owned.next)).collect();
        assert_eq!(said, [(1, 7), (2, 8)]);
        let other = [b"switchback 0.0.0 1 1\n", &encode(&flows)[header().len()..]].concat();
        assert!(decode(&other).is_none(), "of another version");
        assert_eq!(decode(&encode(&flows)[..header().len() + RECORD + 1]).unwrap().len(), 1, "cut off");
    }
}
