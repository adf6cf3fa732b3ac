//! Follows a message that arrives in pieces.

use switchback_http::framing::generated::SB_FRAMING_HEAD;
use switchback_http::framing::{Followed, Framing, Table};

/// State at the start of a request or a response.
pub fn begin() -> Framing {
    Framing::new(SB_FRAMING_HEAD, 0).with_allowed(u64::MAX)
}

/// Follows the message that begins with `framing` and arrives in `pieces`. Returns the result, the last state, and the
/// positions of cookies named `wanted`, counted from the start of the first piece.
pub fn follow_pieces(
    table: &Table,
    mut framing: Framing,
    pieces: &[&[u8]],
    to_head: bool,
    wanted: &[u8],
) -> (Followed, Framing, Vec<usize>) {
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
