//! Returns memory of clients that have left to the system.
//!
//! glibc keeps freed memory inside its arenas until `malloc_trim` is called. That happens when many
//! connections and streams have ended, not more often than each [`INTERVAL`].

use std::sync::Arc;
use std::time::Duration;

use super::budgets::Budgets;

const INTERVAL: Duration = Duration::from_secs(2);
/// Connections and streams that have to end in between.
const MANY: u64 = 256;

/// Returns freed memory, without end.
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
