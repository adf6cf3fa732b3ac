//! A real application server whose responses cost CPU time: PHP behind nginx.
//!
//! For each request a script derives a key, as for a password, to use CPU time; then it sends the document of the
//! request's name. The time depends on the machine, and is the same for every request.

use std::fs;
use std::net::SocketAddr;

use crate::error::{Doing, Result};
use crate::host::Host;
use crate::server::{Server, ServerKind, ServerOptions, nginx_configuration, server_command};

/// Buffers for documents up to 1.6 MB; larger ones would go through a temporary file of nginx.
const BUFFERS: &str = "fastcgi_buffers 100 16k;";

/// Options of a page server.
#[derive(Clone, Debug)]
pub struct PageServerOptions {
    /// Its addresses.
    pub listen: Vec<SocketAddr>,
    /// Processes, each of which handles one request at a time.
    pub workers: u32,
    /// Rounds of PBKDF2 with SHA-256 for each request; a thousand take some two milliseconds.
    pub rounds: u32,
}

impl Host {
    /// Starts a page server and waits until it listens.
    pub fn page_server(&self, options: &PageServerOptions) -> Result<Server> {
        let directory = self.directory().join("pages");
        fs::create_dir_all(&directory).doing(|| format!("create {}", directory.display()))?;
        let script = directory.join("page.php");
        fs::write(&script, script_text(options.rounds)).doing(|| format!("write {}", script.display()))?;
        let socket = directory.join("fpm.sock").display().to_string();
        let fpm = self.start_fpm("page-fpm", &directory, &socket, options.workers, "")?;
        let extra = format!(
            "location / {{
            fastcgi_pass unix:{socket};
            {BUFFERS}
            fastcgi_param SCRIPT_FILENAME {};
            fastcgi_param REQUEST_METHOD $request_method;
            fastcgi_param DOCUMENT $document_root$uri;
        }}",
            script.display()
        );
        let front = ServerOptions { listen: options.listen.clone(), extra, ..ServerOptions::default() };
        let server = self.start_server(
            "page",
            &front.listen,
            |files| nginx_configuration(self.name(), files, &front),
            |files, path| server_command(ServerKind::Nginx, path, files, &front),
        )?;
        Ok(server.with_backend(fpm))
    }
}

fn script_text(rounds: u32) -> String {
    format!(
        "<?php
hash_pbkdf2('sha256', 'page', 'salt', {rounds});
$document = $_SERVER['DOCUMENT'];
header('Content-Type: application/octet-stream');
header('Content-Length: ' . filesize($document));
readfile($document);
"
    )
}
