//! Memory that clients have had goes back to the system when they leave.
//!
//! glibc keeps what is freed for later, in the middle of its arenas as long as nobody asks. It is asked when many
//! connections and streams have ended, not more often than each [`INTERVAL`].

use std::sync::Arc;
use std::time::Duration;

use super::budgets::Budgets;

const INTERVAL: Duration = Duration::from_secs(2);
/// So many have to end in between.
const MANY: u64 = 256;

/// Gives it back again and again.
pub(super) async fn give_back(budgets: Arc<Budgets>) {
    let mut before = 0;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let ended = budgets.ended();
        if ended - before >= MANY {
            before = ended;
            // It takes milliseconds, in which other threads wait for memory only.
            let _ = tokio::task::spawn_blocking(trim).await;
        }
    }
}

fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) may be called at any time, from any thread.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}
