//! Asks the daemons of this process how they are doing, for everybody who wants to know.
//!
//! A question takes some of the time of the thread that also serves packets. So there is one at a time, not more than
//! ten a second, and its answer is for all who were waiting when it was asked. Nobody is told what was so before they
//! came.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use switchback_status::Status;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::sleep_until;

/// From one question to the next.
const PAUSE: Duration = Duration::from_millis(100);
/// A daemon that takes longer does not work.
const PATIENCE: Duration = Duration::from_secs(1);

/// What each daemon has answered, or why it has not.
pub type Answers = Vec<Result<Status, String>>;

/// Asks the daemons behind these sockets, as [`Server::start`](crate::Server::start) wants it.
pub fn over(sockets: Vec<PathBuf>) -> impl Fn() -> Answers + Send + Sync + 'static {
    let ask = |socket: &PathBuf| Status::ask(socket, PATIENCE).map_err(|error| error.to_string());
    move || sockets.iter().map(ask).collect()
}

/// Who asks.
pub(crate) struct Asker {
    ask: Arc<dyn Fn() -> Answers + Send + Sync>,
    /// When the last question was asked, and its answers.
    last: Mutex<Option<(Instant, Arc<Answers>)>>,
}

impl Asker {
    pub(crate) fn new(ask: impl Fn() -> Answers + Send + Sync + 'static) -> Asker {
        Asker { ask: Arc::new(ask), last: Mutex::new(None) }
    }

    /// How the daemons are doing now.
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
