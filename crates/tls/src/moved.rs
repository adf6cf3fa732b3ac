//! A connection on its way to another node.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::keys::{Cipher, Half};
use crate::record_layer::Version;
use crate::records::Records;
use crate::sealer::Sealer;
use crate::session::{Facts, Session, State};
use crate::{ClientCertificate, Error, MovedError};

/// The state of a connection for another node: keys, record numbers, and data that has been read and not
/// used. It is as secret as the connection, and is sent encrypted only.
#[derive(Serialize, Deserialize)]
pub struct Moved {
    version: u8,
    read: MovedHalf,
    write: MovedHalf,
    read_closed: bool,
    write_closed: bool,
    message: Zeroizing<Vec<u8>>,
    incoming: Vec<u8>,
    data: Zeroizing<Vec<u8>>,
    protocol: Option<Vec<u8>>,
    server_name: Option<String>,
    resumed: bool,
    /// The client's certificate, in DER.
    client: Option<Vec<u8>>,
}

#[derive(Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
struct MovedHalf {
    cipher: u8,
    key: Vec<u8>,
    iv: Vec<u8>,
    secret: Vec<u8>,
    sequence: u64,
}

impl MovedHalf {
    fn of(half: &Half) -> Self {
        let (key, iv, secret) = half.parts();
        MovedHalf {
            cipher: half.cipher as u8,
            key: key.to_vec(),
            iv: iv.to_vec(),
            secret: secret.to_vec(),
            sequence: half.sequence,
        }
    }

    fn open(&self) -> Result<Half, MovedError> {
        let cipher = Cipher::ALL.into_iter().find(|cipher| *cipher as u8 == self.cipher).ok_or(MovedError)?;
        Half::new(cipher, &self.key, &self.iv, &self.secret, self.sequence).map_err(|_| MovedError)
    }
}

impl Session {
    /// Gives the connection up here, for another node. The bytes in [`outgoing`](Session::outgoing) must have
    /// been sent: the bytes are numbered, and the other node goes on with the next number.
    pub fn give_up(self) -> Result<Moved, Error> {
        if !self.outgoing.is_empty() {
            return Err(Error::Internal);
        }
        self.copy().ok_or(Error::Internal)
    }

    /// The connection as it is now, for another node in case that this one dies. None before the end of the handshake, and
    /// while another node or the kernel encrypts.
    pub fn copy(&self) -> Option<Moved> {
        let State::Open(records) = &self.state else { return None };
        let write = records.write.as_ref().filter(|write| !write.by_kernel)?;
        let Facts { protocol, server_name, resumed, client } = self.facts.clone();
        Some(Moved {
            version: records.version as u8,
            read: MovedHalf::of(&records.read),
            write: MovedHalf::of(&write.half),
            read_closed: records.read_closed,
            write_closed: records.write_closed,
            message: Zeroizing::new(records.message.clone()),
            incoming: self.incoming.clone(),
            data: Zeroizing::new(self.data().to_vec()),
            protocol,
            server_name,
            resumed,
            client: client.map(|client| client.der().to_vec()),
        })
    }

    /// Goes on with a connection that another node has given up.
    pub fn take_over(mut moved: Moved) -> Result<Session, MovedError> {
        let version = version(moved.version)?;
        let mut records = Records::new(version, moved.read.open()?, moved.write.open()?);
        records.read_closed = moved.read_closed;
        records.write_closed = moved.write_closed;
        records.message = std::mem::take(&mut *moved.message);
        let (protocol, server_name) = (moved.protocol.take(), moved.server_name.take());
        let client = moved.client.take().map(|der| ClientCertificate::new(&der).map(Arc::new));
        let client = client.transpose().map_err(|_| MovedError)?;
        Ok(Session {
            state: State::Open(Box::new(records)),
            incoming: std::mem::take(&mut moved.incoming),
            outgoing: Vec::new(),
            data: std::mem::take(&mut *moved.data),
            read: 0,
            facts: Facts { protocol, server_name, resumed: moved.resumed, client },
        })
    }
}

/// The writing half of a connection, on loan to another node, which answers a request and gives it back. It
/// is as secret as the connection, and is sent encrypted only.
#[derive(Serialize, Deserialize)]
pub struct Lent {
    version: u8,
    write: MovedHalf,
}

impl Lent {
    /// The state of this sealer.
    pub fn of(sealer: &Sealer) -> Self {
        Lent { version: sealer.version as u8, write: MovedHalf::of(&sealer.half) }
    }

    /// The sealer with this state.
    pub fn open(&self) -> Result<Sealer, MovedError> {
        Ok(Sealer::new(version(self.version)?, self.write.open()?))
    }
}

impl Session {
    /// Lends the writing half. Until [`take_back`](Self::take_back) only records that the other node has
    /// sealed can be sent to the client; they go behind [`outgoing`](Self::outgoing).
    pub fn lend(&mut self) -> Result<Lent, Error> {
        let State::Open(records) = &mut self.state else { return Err(Error::Internal) };
        let closed = records.write_closed;
        let sealer = records.write.take_if(|write| !closed && !write.by_kernel).ok_or(Error::Internal)?;
        Ok(Lent::of(&sealer))
    }

    /// Goes on where the other node has stopped. `owes_update`: the client has asked that node for new keys,
    /// and has not got them.
    pub fn take_back(&mut self, lent: &Lent, owes_update: bool) -> Result<(), MovedError> {
        let sealer = lent.open()?;
        let owes_update = self.take_owed_update() || owes_update;
        match &mut self.state {
            State::Open(records) if records.version == sealer.version && records.write.is_none() => {
                let sealer = records.write.insert(sealer);
                match owes_update {
                    true => sealer.update_keys(false, &mut self.outgoing).map_err(|_| MovedError),
                    false => Ok(()),
                }
            }
            _ => Err(MovedError),
        }
    }

    /// Whether the client has asked for a key update while another node writes, which that node has to
    /// answer; true once.
    pub fn take_owed_update(&mut self) -> bool {
        match &mut self.state {
            State::Open(records) => std::mem::take(&mut records.owes_update),
            _ => false,
        }
    }
}

fn version(number: u8) -> Result<Version, MovedError> {
    match number {
        2 => Ok(Version::Tls12),
        3 => Ok(Version::Tls13),
        _ => Err(MovedError),
    }
}

impl Moved {
    /// The form in which it is sent.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(postcard::to_allocvec(self).expect("memory takes everything"))
    }

    /// The connection in bytes that another node has sent.
    pub fn from_bytes(bytes: &[u8]) -> Result<Moved, MovedError> {
        let (moved, rest) = postcard::take_from_bytes(bytes).map_err(|_| MovedError)?;
        if rest.is_empty() { Ok(moved) } else { Err(MovedError) }
    }
}

/// Without keys and data.
impl std::fmt::Debug for Moved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Moved")
    }
}

/// Without keys.
impl std::fmt::Debug for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lent")
    }
}
