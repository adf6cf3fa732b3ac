//! HTTP requests to the CA: one on each connection, because an order has some ten of them, and the next comes in weeks.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, HeaderValue};
use http::uri::{PathAndQuery, Scheme};
use http::{Request, Uri};
use http_body_util::Limited;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error as CaError, HttpClient};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::Error;

/// Time for a connection to one address.
const CONNECT: Duration = Duration::from_secs(10);
/// Time for a request and its response.
const RESPONSE: Duration = Duration::from_secs(60);
/// Longest response, in bytes.
const BODY_MAX: usize = 1 << 20;
const HTTPS_PORT: u16 = 443;

/// Speaks HTTP/1.1 over TLS.
#[derive(Clone)]
pub(crate) struct Https(TlsConnector);

impl Https {
    /// Trusts the certification authorities in the file `ca`, or those that the machine trusts.
    pub(crate) fn new(ca: Option<&Path>) -> Result<Https, Error> {
        let mut roots = RootCertStore::empty();
        match ca {
            Some(path) => {
                let wrong =
                    |error: &dyn std::fmt::Display| Error::Content(path.to_owned(), error.to_string());
                for root in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
                    let root = root.map_err(|error| wrong(&error))?;
                    roots.add(root).map_err(|error| wrong(&error))?;
                }
                if roots.is_empty() {
                    return Err(wrong(&"no certificate in PEM in it"));
                }
            }
            None => {
                // Of roots that cannot be read the others are left.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    return Err(Error::NoRoots);
                }
            }
        }
        let config =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| CaError::Other(Box::new(error)))?
                .with_root_certificates(roots)
                .with_no_client_auth();
        Ok(Https(TlsConnector::from(Arc::new(config))))
    }

    async fn respond(self, mut request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, CaError> {
        let uri = std::mem::take(request.uri_mut());
        let Some(authority) = uri.authority().filter(|_| uri.scheme() == Some(&Scheme::HTTPS)) else {
            return Err(CaError::Str("a URL with https from the CA"));
        };
        let host = HeaderValue::try_from(authority.as_str()).map_err(http::Error::from)?;
        request.headers_mut().insert(HOST, host);
        *request.uri_mut() =
            Uri::from(uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")));
        let port = authority.port_u16().unwrap_or(HTTPS_PORT);
        let name = authority.host().trim_matches(['[', ']']).to_owned();
        let stream = self.connect(name, port).await.map_err(|error| CaError::Other(Box::new(error)))?;
        let other = |error| CaError::Other(Box::new(error));
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(other)?;
        // Its errors are those of the request.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        let response = sender.send_request(request).await.map_err(other)?;
        Ok(response.map(|body| Limited::new(body, BODY_MAX)).into())
    }

    async fn connect(
        &self,
        host: String,
        port: u16,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
        let at = |error: io::Error| io::Error::new(error.kind(), format!("{host}: {error}"));
        resolve_without_libraries();
        let addresses: Vec<SocketAddr> = lookup_host((&*host, port)).await.map_err(at)?.collect();
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            let connecting = async { self.0.connect(name.clone(), TcpStream::connect(address).await?).await };
            match timeout(CONNECT, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = io::Error::new(error.kind(), format!("{host} at {address}: {error}")),
            }
        }
        Err(last)
    }
}

/// Keeps a program that is linked statically from loading libraries of this machine for names, which may belong to another glibc:
/// it has `files` and `dns` itself.
fn resolve_without_libraries() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        use std::ffi::{c_char, c_int};
        unsafe extern "C" {
            /// `<nss.h>`
            fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
        }
        // SAFETY: both texts end with a NUL, and glibc copies what it keeps of them, under a lock.
        unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
    }
}

impl HttpClient for Https {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, CaError>> + Send>> {
        let responding = self.clone().respond(request);
        Box::pin(async {
            let late = |_| CaError::Other(Box::new(io::Error::from(io::ErrorKind::TimedOut)));
            timeout(RESPONSE, responding).await.map_err(late)?
        })
    }
}
