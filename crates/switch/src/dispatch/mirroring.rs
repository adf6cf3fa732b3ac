//! Copies of requests for the pools that mirror them.

use std::net::SocketAddr;

use switchback_http::{Progress, parse_head};
use switchback_policy::Ask;
use switchback_routes::{copy, whole_body};
use switchback_tls::endpoint::{Copy, MirrorServer, PORT};
use switchback_wire::sb_flow;

use super::{Dispatcher, Moment};
use switchback_flow::request::InProgress;

impl Dispatcher {
    /// Sends a copy of a request that a node has been given, if a pool mirrors it.
    pub(super) fn mirror_held(&mut self, at: Moment<'_>, flow: &sb_flow, request: &InProgress) {
        if let Some(group) = request.request.mirror {
            let data = request.packets.stream(request.after().mark.begins);
            let text = request.head.as_ref().map(|head| head.text());
            self.mirror(at, flow, (group, request.request.service), &data, text);
        }
    }

    /// Sends a copy of the request that `data` begins with to a node of this group of the service, if it has come whole. Its
    /// server gets the head `text`, if that is another one.
    pub(super) fn mirror(
        &mut self,
        at: Moment<'_>,
        flow: &sb_flow,
        (group, service): (usize, usize),
        data: &[u8],
        text: Option<&[u8]>,
    ) {
        let limits = self.plan.http_limits();
        let Ok(Progress::Complete(head)) = parse_head(data, &limits) else { return };
        let Some(body) = whole_body(data, &head, &limits) else { return };
        let ask = Ask { key: self.plan.key(group, flow, &head), now: at.now };
        let adopting = self.pending.adopting(group);
        let node = self.plan.pick((group, None), &ask, (&[], false), adopting, &mut self.random);
        let Some(node) = node.and_then(|node| self.plan.node(node)) else {
            self.stats.copies_unplaced += 1;
            return;
        };
        let client = flow.client().ip().to_string();
        let copy = Copy {
            server: MirrorServer {
                service: self.plan.services[service].name.clone(),
                pool: self.plan.id_of(group),
                node: node.name.clone(),
            },
            greeting: Vec::new(),
            request: copy(text.unwrap_or(&data[head.start..head.len]), body, &[("X-Forwarded-For", &client)]),
        };
        self.output.copies.push((SocketAddr::new(node.address.machine, PORT), copy));
    }
}
