//! Asks the daemons of this process for their status, on behalf of all clients.
//!
//! A request takes time of the thread that also serves packets. So there is one at a time, not more than ten
//! a second, and its answer is for all clients that were waiting when it was sent. No client gets an answer
//! from before it came.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use switchback_status::Status;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::sleep_until;

/// Shortest time between two requests.
const PAUSE: Duration = Duration::from_millis(100);
/// Time after which a daemon without an answer counts as dead.
const PATIENCE: Duration = Duration::from_secs(1);

/// The status of each daemon, or the error.
pub type Answers = Vec<Result<Status, String>>;

/// A function that asks the daemons behind these sockets, for [`Server::start`](crate::Server::start).
pub fn over(sockets: Vec<PathBuf>) -> impl Fn() -> Answers + Send + Sync + 'static {
    let ask = |socket: &PathBuf| Status::ask(socket, PATIENCE).map_err(|error| error.to_string());
    move || sockets.iter().map(ask).collect()
}

/// Asks the daemons, and keeps their last answers.
pub(crate) struct Asker {
    ask: Arc<dyn Fn() -> Answers + Send + Sync>,
    /// Time of the last request, and its answers.
    last: Mutex<Option<(Instant, Arc<Answers>)>>,
}

impl Asker {
    pub(crate) fn new(ask: impl Fn() -> Answers + Send + Sync + 'static) -> Asker {
        Asker { ask: Arc::new(ask), last: Mutex::new(None) }
    }

    /// Answers to a request that was sent after this call.
    pub(crate) async fn ask(&self) -> Arc<Answers> {
        let come = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((asked, answers)) = &*last {
            if *asked >= come {
                return Arc::clone(answers);
            }
            sleep_until((*asked + PAUSE).into()).await;
        }
        let asked = Instant::now();
        let ask = Arc::clone(&self.ask);
        let answers =
            spawn_blocking(move || ask()).await.unwrap_or_else(|panic| vec![Err(panic.to_string())]);
        let answers = Arc::new(answers);
        *last = Some((asked, Arc::clone(&answers)));
        answers
    }
}
