//! A connection on its way to another node.

use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::keys::{Cipher, Half};
use crate::records::{Records, Version};
use crate::session::{Facts, Session, State};
use crate::{Error, MovedError};

/// All that another node needs to go on: keys, numbers, and what has been read and not used. It is as secret as the
/// connection, and is sent encrypted only.
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
    /// Gives the connection up here, for another node. What is in [`outgoing`](Session::outgoing) has to have been sent:
    /// the bytes are numbered, and the other node goes on with the next number.
    pub fn give_up(mut self) -> Result<Moved, Error> {
        let State::Open(records) = std::mem::replace(&mut self.state, State::Failed) else {
            return Err(Error::Internal);
        };
        if !self.outgoing.is_empty() {
            return Err(Error::Internal);
        }
        let Facts { protocol, server_name, resumed } = std::mem::take(&mut self.facts);
        Ok(Moved {
            version: records.version as u8,
            read: MovedHalf::of(&records.read),
            write: MovedHalf::of(&records.write),
            read_closed: records.read_closed,
            write_closed: records.write_closed,
            message: Zeroizing::new(records.message),
            incoming: std::mem::take(&mut self.incoming),
            data: Zeroizing::new(self.data().to_vec()),
            protocol,
            server_name,
            resumed,
        })
    }

    /// Goes on with a connection that another node has given up.
    pub fn take_over(mut moved: Moved) -> Result<Session, MovedError> {
        let version = match moved.version {
            2 => Version::Tls12,
            3 => Version::Tls13,
            _ => return Err(MovedError),
        };
        let mut records = Records::new(version, moved.read.open()?, moved.write.open()?);
        records.read_closed = moved.read_closed;
        records.write_closed = moved.write_closed;
        records.message = std::mem::take(&mut *moved.message);
        let (protocol, server_name) = (moved.protocol.take(), moved.server_name.take());
        Ok(Session {
            state: State::Open(Box::new(records)),
            incoming: std::mem::take(&mut moved.incoming),
            outgoing: Vec::new(),
            data: std::mem::take(&mut *moved.data),
            read: 0,
            facts: Facts { protocol, server_name, resumed: moved.resumed },
        })
    }
}

impl Moved {
    /// As it is sent.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(postcard::to_allocvec(self).expect("memory takes everything"))
    }

    /// What another node has sent.
    pub fn from_bytes(bytes: &[u8]) -> Result<Moved, MovedError> {
        let (moved, rest) = postcard::take_from_bytes(bytes).map_err(|_| MovedError)?;
        if rest.is_empty() { Ok(moved) } else { Err(MovedError) }
    }
}

/// Says nothing of keys and data.
impl std::fmt::Debug for Moved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Moved")
    }
}
