//! Calls to servers on loopback addresses, some of which write each frame themselves.

use std::collections::VecDeque;
use std::net::SocketAddr;

use h2::RecvStream;
use h2::server::{Connection, SendResponse};
use http::Response;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::super::server::ServerAddress;
use super::*;

/// Frames, byte for byte (RFC 9113 section 4.1).
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const HEADERS: u8 = 1;

fn go_away(last: u8) -> Vec<u8> {
    [&b"\0\0\x08\x07\0\0\0\0\0"[..], &[0, 0, 0, last], &[0; 4]].concat()
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(std::time::Duration::from_secs(20), test).await.unwrap() })
}

/// A body in these parts; the connection to its sender breaks at an error.
struct Parts(VecDeque<Result<Part, h2::Error>>);

impl Body for Parts {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        Poll::Ready(self.0.pop_front().map(|part| part.map(Part::frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

impl Source for Parts {}
impl Source for Endless {}

fn upload(data: &[&[u8]]) -> Parts {
    let parts = data.iter().map(|data| Part::Data(Bytes::copy_from_slice(data)));
    let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "7".parse().unwrap())]);
    Parts(parts.chain([Part::Trailers(trailers)]).map(Ok).collect())
}

/// A body that goes on for ever.
struct Endless;

impl Body for Endless {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[7; 1 << 10])))))
    }
}

fn request() -> Request<()> {
    Request::post("http://shop.example/a").body(()).unwrap()
}

async fn listen() -> (TcpListener, Vec<Arc<Multiplexed>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, vec![server(address)])
}

fn server(address: SocketAddr) -> Arc<Multiplexed> {
    Arc::new(Multiplexed::new(ServerAddress::Tcp(address), "n1".into()))
}

/// The next connection, as h2 has it.
async fn accept(listener: &TcpListener) -> Connection<TcpStream, Bytes> {
    h2::server::handshake(listener.accept().await.unwrap().0).await.unwrap()
}

type Asked = (Request<RecvStream>, SendResponse<Bytes>);

/// The next request, and the connection, which a task reads and writes from then on.
async fn asked(listener: &TcpListener) -> Asked {
    let mut connection = accept(listener).await;
    let asked = connection.accept().await.unwrap().unwrap();
    tokio::spawn(async move { while connection.accept().await.is_some() {} });
    asked
}

/// The whole of a request's body.
async fn whole(mut body: RecvStream) -> (Vec<u8>, Option<HeaderMap>) {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        all.extend_from_slice(&data);
    }
    (all, body.trailers().await.unwrap())
}

fn ok() -> Response<()> {
    Response::new(())
}

/// The next part of a response's body.
async fn next(body: &mut ResponseBody) -> Option<Result<Frame<Bytes>, h2::Error>> {
    std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
}

/// A connection on which frames are written by hand, behind the head of the first request.
async fn accept_raw(listener: &TcpListener) -> TcpStream {
    let mut stream = listener.accept().await.unwrap().0;
    stream.read_exact(&mut [0; 24]).await.unwrap();
    stream.write_all(SETTINGS).await.unwrap();
    while read_frame(&mut stream).await != HEADERS {}
    stream
}

/// The type of the next frame.
async fn read_frame(stream: &mut TcpStream) -> u8 {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
    stream.read_exact(&mut payload).await.unwrap();
    head[3]
}

/// Calls one of these servers, with nobody who cancels.
async fn plain_call<B>(servers: &[Arc<Multiplexed>], body: B) -> Result<Answered, CallError>
where
    B: Source + Send + 'static,
    B::Error: Into<BodyError> + Send,
{
    let (_cancel, cancelled) = oneshot::channel();
    call(servers, &request(), body, cancelled).await
}

#[test]
fn what_was_refused_is_sent_once_more() {
    run(async {
        let (listener, servers) = listen().await;
        let serve = async {
            let mut connection = accept(&listener).await;
            let (_, mut respond) = connection.accept().await.unwrap().unwrap();
            respond.send_reset(Reason::REFUSED_STREAM);
            let (request, mut respond) = connection.accept().await.unwrap().unwrap();
            tokio::spawn(async move { while connection.accept().await.is_some() {} });
            assert_eq!(request.uri(), "http://shop.example/a");
            respond.send_response(ok(), true).unwrap();
            whole(request.into_body()).await
        };
        let (answered, (sent, trailers)) = tokio::join!(plain_call(&servers, upload(&[b"ab", b"c"])), serve);
        assert_eq!((answered.unwrap().head.status.as_u16(), &*sent), (200, &b"abc"[..]));
        assert_eq!(trailers.unwrap()["x-sum"], "7");
    });
}

#[test]
fn what_a_server_that_leaves_has_not_read_goes_to_the_next() {
    run(async {
        let (listener, servers) = listen().await;
        let serve = async {
            let mut leaving = accept_raw(&listener).await;
            leaving.write_all(&go_away(0)).await.unwrap();
            let (request, mut respond) = asked(&listener).await;
            respond.send_response(ok(), true).unwrap();
            whole(request.into_body()).await.0
        };
        let (answered, sent) = tokio::join!(plain_call(&servers, upload(&[b"abc"])), serve);
        assert!(answered.is_ok());
        assert_eq!(sent, b"abc");
    });
}

/// Nobody knows whether the server has done what it was asked.
#[test]
fn what_may_have_been_processed_is_not_sent_again() {
    run(async {
        let (listener, servers) = listen().await;
        let serve = async {
            let mut leaving = accept_raw(&listener).await;
            leaving.write_all(&go_away(1)).await.unwrap();
        };
        let (answered, ()) = tokio::join!(plain_call(&servers, upload(&[b"abc"])), serve);
        assert_eq!(answered.err(), Some(CallError::Lost));
    });
}

#[test]
fn a_body_that_is_too_long_to_be_kept_is_not_sent_again() {
    run(async {
        let (listener, servers) = listen().await;
        let serve = async {
            let mut connection = accept(&listener).await;
            let (request, mut respond) = connection.accept().await.unwrap().unwrap();
            let mut body = request.into_body();
            let read = async {
                let mut len = 0;
                while len <= KEPT_MAX {
                    let data = body.data().await.unwrap().unwrap();
                    body.flow_control().release_capacity(data.len()).unwrap();
                    len += data.len();
                }
                respond.send_reset(Reason::REFUSED_STREAM);
            };
            tokio::select! {
                () = async { tokio::join!(read, std::future::pending::<()>()); } => {}
                _ = connection.accept() => {}
            }
        };
        let answered = tokio::select! {
            answered = plain_call(&servers, Endless) => answered,
            () = serve => panic!("the connection has ended"),
        };
        assert_eq!(answered.err(), Some(CallError::Unprocessed));
    });
}

#[test]
fn resets_pass_with_their_codes() {
    run(async {
        let (listener, servers) = listen().await;
        // By the server, before its response and in the middle of it.
        let serve = async {
            let (_, mut respond) = asked(&listener).await;
            respond.send_reset(Reason::ENHANCE_YOUR_CALM);
        };
        let (answered, ()) = tokio::join!(plain_call(&servers, upload(&[])), serve);
        assert_eq!(answered.err(), Some(CallError::Reset(Reason::ENHANCE_YOUR_CALM)));

        let (listener, servers) = listen().await;
        let serve = async {
            let (request, mut respond) = asked(&listener).await;
            let mut stream = respond.send_response(ok(), false).unwrap();
            stream.send_data(Bytes::from_static(b"part"), false).unwrap();
            (request, stream)
        };
        let (answered, (_request, mut stream)) = tokio::join!(plain_call(&servers, upload(&[])), serve);
        let mut body = answered.unwrap().body;
        assert_eq!(next(&mut body).await.unwrap().unwrap().into_data().unwrap(), "part");
        stream.send_reset(Reason::CANCEL);
        let error = next(&mut body).await.unwrap().unwrap_err();
        assert_eq!(reason(&error), Some(Reason::CANCEL), "what is cut off does not look complete");

        // By the client, in its body and after it.
        let (listener, servers) = listen().await;
        let broken = Parts(VecDeque::from([Ok(Part::Data("a".into())), Err(Reason::CANCEL.into())]));
        let serve = async {
            let (request, _respond) = asked(&listener).await;
            let mut body = request.into_body();
            while let Some(data) = body.data().await {
                if let Err(error) = data {
                    return error.reason();
                }
            }
            None
        };
        let (answered, seen) = tokio::join!(plain_call(&servers, broken), serve);
        assert!(matches!(answered.err(), Some(CallError::Reset(_))));
        assert_eq!(seen, Some(Reason::CANCEL));

        let (listener, servers) = listen().await;
        let (cancel, cancelled) = oneshot::channel();
        let serve = async {
            let (request, mut respond) = asked(&listener).await;
            assert_eq!(whole(request.into_body()).await.0, b"abc");
            let mut stream = respond.send_response(ok(), false).unwrap();
            std::future::poll_fn(|cx| stream.poll_reset(cx)).await.unwrap()
        };
        let called = async {
            let answered = call(&servers, &request(), upload(&[b"abc"]), cancelled).await.unwrap();
            cancel.send(Reason::INADEQUATE_SECURITY).unwrap();
            answered
        };
        let (_answered, seen) = tokio::join!(called, serve);
        assert_eq!(seen, Reason::INADEQUATE_SECURITY);
    });
}

#[test]
fn a_response_may_come_before_the_request_is_whole() {
    run(async {
        let (listener, servers) = listen().await;
        let serve = async {
            let (request, mut respond) = asked(&listener).await;
            let mut stream = respond.send_response(ok(), false).unwrap();
            stream.send_data(Bytes::from_static(b"enough"), true).unwrap();
            // h2 resets the stream with NO_ERROR then.
            drop((request, respond, stream));
        };
        let (answered, ()) = tokio::join!(plain_call(&servers, Endless), serve);
        let mut body = answered.unwrap().body;
        assert_eq!(next(&mut body).await.unwrap().unwrap().into_data().unwrap(), "enough");
        assert!(next(&mut body).await.is_none());
    });
}

/// Some servers take few requests at a time, and say so.
#[test]
fn no_connection_has_more_streams_than_its_server_takes() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let servers = vec![server(listener.local_addr().unwrap())];
        let serve = async {
            let mut all = Vec::new();
            for _ in 0..2 {
                let stream = listener.accept().await.unwrap().0;
                let mut builder = h2::server::Builder::new();
                let mut connection = builder.max_concurrent_streams(2).handshake(stream).await.unwrap();
                let (sender, mut received) = tokio::sync::mpsc::unbounded_channel::<Asked>();
                tokio::spawn(async move {
                    while let Some(asked) = connection.accept().await {
                        let _ = sender.send(asked.unwrap());
                    }
                });
                let [first, second] = [received.recv().await.unwrap(), received.recv().await.unwrap()];
                all.extend([first, second]);
            }
            // Only now that all four have come, the first is answered.
            all.iter_mut().for_each(|(_, respond)| drop(respond.send_response(ok(), true).unwrap()));
            all
        };
        let calls = async {
            let one = || plain_call(&servers, upload(&[]));
            let answered = tokio::join!(one(), one(), one(), one());
            [answered.0.is_ok(), answered.1.is_ok(), answered.2.is_ok(), answered.3.is_ok()]
        };
        let (answered, _asked) = tokio::join!(calls, serve);
        assert_eq!(answered, [true; 4]);
    });
}

#[test]
fn another_server_gets_what_the_first_is_not_there_for() {
    run(async {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let http1 = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let http1_address = http1.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let mut stream = http1.accept().await.unwrap().0;
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await.unwrap();
            }
        });
        let bad = [server(closed), server(http1_address)];
        assert_eq!(plain_call(&bad, upload(&[])).await.err(), Some(CallError::Unreachable));

        let (listener, good) = listen().await;
        let servers = [&bad[..], &good].concat();
        let serve = async {
            let (_request, mut respond) = asked(&listener).await;
            respond.send_response(ok(), true).unwrap();
        };
        let (answered, ()) = tokio::join!(plain_call(&servers, upload(&[])), serve);
        assert!(answered.is_ok());
    });
}
