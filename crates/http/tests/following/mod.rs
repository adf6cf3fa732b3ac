//! Following a message that arrives in pieces.

use switchback_http::framing::{Followed, Table};
use switchback_wire::{SB_FRAMING_HEAD, sb_framing};

/// Where a request or a response begins.
pub fn begin() -> sb_framing {
    sb_framing { state: SB_FRAMING_HEAD as u16, allowed: u64::MAX, ..Default::default() }
}

/// What becomes of the message that begins with `framing` and arrives in `pieces`, what is known then, and
/// where cookies called `wanted` were found. Positions count from the start of the first piece.
pub fn follow_pieces(
    table: &Table,
    mut framing: sb_framing,
    pieces: &[&[u8]],
    to_head: bool,
    wanted: &[u8],
) -> (Followed, sb_framing, Vec<usize>) {
    let (mut start, mut found) = (0, Vec::new());
    for piece in pieces {
        let tell = &mut |at| found.push(start + at);
        let followed = match table.follow_names(&mut framing, piece, to_head, wanted, tell) {
            Followed::More => {
                start += piece.len();
                continue;
            }
            Followed::Ends(at) => Followed::Ends(start + at),
            Followed::Rejected(reason, at) => Followed::Rejected(reason, start + at),
            Followed::Lost => Followed::Lost,
        };
        return (followed, framing, found);
    }
    (Followed::More, framing, found)
}
