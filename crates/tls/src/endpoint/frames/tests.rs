//! Bodies between two connections of HTTP/2, of which each has two ends in memory.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use h2::client::SendRequest;
use h2::server::SendResponse;
use http::{Request, Response};
use switchback_config::ClientAddress;
use tokio::time::timeout;

use super::*;

/// The initial window of a stream (RFC 9113 section 6.9.2).
const WINDOW: usize = 65_535;

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(Duration::from_secs(20), test).await.unwrap() })
}

/// A client, and the requests that come to its server, whose frames may take so much memory in h2.
async fn connection(
    frames: usize,
) -> (SendRequest<Bytes>, tokio::sync::mpsc::UnboundedReceiver<(Request<RecvStream>, SendResponse<Bytes>)>) {
    let (near, far) = tokio::io::duplex(1 << 20);
    let mut builder = h2::client::Builder::new();
    let (sender, client) =
        builder.data_frame_budget(frames).max_send_buffer_size(SEND_BUFFER).handshake(near).await.unwrap();
    tokio::spawn(client);
    let mut builder = h2::server::Builder::new();
    let mut server =
        builder.data_frame_budget(frames).max_send_buffer_size(SEND_BUFFER).handshake(far).await.unwrap();
    let (requests, received) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(request) = server.accept().await {
            let _ = requests.send(request.unwrap());
        }
    });
    (sender, received)
}

/// A stream from a server to its client.
async fn download(frames: usize) -> (SendStream<Bytes>, RecvStream) {
    let (mut sender, mut requests) = connection(frames).await;
    let (response, _) = sender.send_request(Request::get("http://a/").body(()).unwrap(), true).unwrap();
    let (_, mut respond) = requests.recv().await.unwrap();
    let stream = respond.send_response(Response::new(()), false).unwrap();
    (stream, response.await.unwrap().into_body())
}

async fn send<B: Source>(sending: &mut Sending, body: &mut B) -> Result<(), Broken<B::Error>> {
    std::future::poll_fn(|cx| sending.poll_send(body, cx)).await
}

/// So many messages, of so many bytes each; the other tasks have a turn behind every fiftieth.
struct Messages {
    left: Arc<AtomicU32>,
    len: usize,
    has_paused: bool,
}

impl Messages {
    fn new(left: u32, len: usize) -> Self {
        Messages { left: Arc::new(left.into()), len, has_paused: false }
    }

    /// Waits until no more is taken, and returns what is left. All tasks are in memory, so those that can go on do.
    async fn settles(left: &AtomicU32) -> u32 {
        let mut last = left.load(Relaxed);
        loop {
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
            let now = left.load(Relaxed);
            if now == last {
                return now;
            }
            last = now;
        }
    }
}

impl Body for Messages {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let left = self.left.load(Relaxed);
        if left == 0 {
            return Poll::Ready(None);
        }
        if left.is_multiple_of(50) && !self.has_paused {
            self.has_paused = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.has_paused = false;
        self.left.store(left - 1, Relaxed);
        Poll::Ready(Some(Ok(Frame::data(vec![7; self.len].into()))))
    }
}

impl Source for Messages {}

async fn whole(mut body: RecvStream) -> (Vec<u8>, Option<HeaderMap>) {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        all.extend_from_slice(&data);
    }
    (all, body.trailers().await.unwrap())
}

#[test]
fn no_more_is_taken_than_a_receiver_has_room_for() {
    run(async {
        let (stream, body) = download(usize::MAX).await;
        let mut endless = Messages::new(u32::MAX, 1 << 10);
        let left = Arc::clone(&endless.left);
        let sent = tokio::spawn(async move { send(&mut Sending::new(stream), &mut endless).await });
        let taken = (u32::MAX - Messages::settles(&left).await) as usize * 1024;
        assert!((WINDOW..=WINDOW + 2 * SEND_BUFFER).contains(&taken), "{taken}");
        drop(body);
        assert!(matches!(sent.await.unwrap(), Err(Broken::Receiver(Some(Reason::CANCEL)))));
    });
}

/// A stream of them is passed on although h2 would not hold the frames of a window, and their receiver does not read at first.
#[test]
fn short_messages_wait_as_bytes() {
    const COUNT: u32 = 200_000;
    run(async {
        let (to_us, from_server) = download(8 * WINDOW).await;
        let (to_client, from_us) = download(usize::MAX).await;
        let mut short = Messages::new(COUNT, 1);
        let left = Arc::clone(&short.left);
        let server = tokio::spawn(async move { send(&mut Sending::new(to_us), &mut short).await.is_ok() });
        let us = tokio::spawn(async move {
            let mut sending = Sending::new(to_client);
            send(&mut sending, &mut StreamBody::of_response(from_server)).await.is_ok()
        });
        let left = Messages::settles(&left).await as usize;
        assert!((1..=COUNT as usize - WINDOW).contains(&left), "{left}");
        let (all, _) = whole(from_us).await;
        assert_eq!((us.await.unwrap(), server.await.unwrap()), (true, true));
        assert_eq!(all.len(), COUNT as usize);
    });
}

#[test]
fn trailers_pass_without_room_for_data_and_without_forged_fields() {
    run(async {
        let (mut sender, mut requests) = connection(usize::MAX).await;
        let (_response, mut stream) =
            sender.send_request(Request::post("http://a/").body(()).unwrap(), false).unwrap();
        let trailers = [("x-forwarded-for", "1.2.3.4"), ("x_real_ip", "1.2.3.4"), ("sum", "7")];
        let trailers =
            trailers.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        stream.send_data("abc".into(), false).unwrap();
        stream.send_trailers(trailers.collect()).unwrap();
        let (request, _respond) = requests.recv().await.unwrap();
        let (head, body) = request.into_parts();
        let told = Told { address: ClientAddress::XForwarded, certificates: false };
        let mut body = StreamBody::of_request(body, &head.headers, told);
        let (to_server, at_server) = download(usize::MAX).await;
        assert!(send(&mut Sending::new(to_server), &mut body).await.is_ok());
        let (data, trailers) = whole(at_server).await;
        assert_eq!(data, b"abc");
        assert_eq!(trailers.unwrap(), HeaderMap::from_iter([("sum".parse().unwrap(), "7".parse().unwrap())]));
    });
}
