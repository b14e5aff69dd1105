//! A name server with one name, as much of one as a resolver asks for (RFC 1035): so that a test can say who knows a
//! name, and see which names were asked for.

use anyhow::{Context as _, Result};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// Length of the header, and of a question's type and class.
const HEADER: usize = 12;
const TYPE_AND_CLASS: usize = 4;
/// The type `A`, in the class `IN`.
const ADDRESS: [u8; TYPE_AND_CLASS] = [0, 1, 0, 1];
const NO_SUCH_NAME: u8 = 3;

/// Answers until it is dropped.
pub struct NameServer {
    known: Arc<Mutex<Option<String>>>,
    asked: Arc<Mutex<Vec<String>>>,
    _answering: JoinSet<()>,
}

impl NameServer {
    /// Serves on port 53 of this address, and knows no name.
    pub async fn serve(address: Ipv4Addr) -> Result<Self> {
        let socket = UdpSocket::bind((address, 53))
            .await
            .with_context(|| format!("port 53 of {address}"))?;
        let (known, asked) = (Arc::default(), Arc::default());
        let mut answering = JoinSet::new();
        answering.spawn(answer_all(socket, Arc::clone(&known), Arc::clone(&asked)));
        Ok(Self {
            known,
            asked,
            _answering: answering,
        })
    }

    /// From now on this name is 127.0.0.1.
    pub fn know(&self, name: &str) {
        *lock(&self.known) = Some(name.to_owned());
    }

    /// The names that it was asked for.
    pub fn asked(&self) -> Vec<String> {
        lock(&self.asked).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer_all(
    socket: UdpSocket,
    known: Arc<Mutex<Option<String>>>,
    asked: Arc<Mutex<Vec<String>>>,
) {
    let mut packet = [0; 512];
    while let Ok((length, from)) = socket.recv_from(&mut packet).await {
        let Some((name, question)) = question(&packet[..length]) else {
            continue;
        };
        let is_known = lock(&known).as_ref() == Some(&name);
        lock(&asked).push(name);
        // A resolver that has gone asks no more.
        let _ = socket
            .send_to(&answer(&packet[..HEADER], question, is_known), from)
            .await;
    }
}

/// The name that is asked for, and the question's bytes.
fn question(packet: &[u8]) -> Option<(String, &[u8])> {
    let mut rest = packet.get(HEADER..)?;
    let mut labels = Vec::new();
    loop {
        let (&length, after) = rest.split_first()?;
        rest = after;
        if length == 0 {
            break;
        }
        let (label, after) = rest.split_at_checked(usize::from(length))?;
        labels.push(String::from_utf8_lossy(label).to_lowercase());
        rest = after;
    }
    let end = packet.len() - rest.len() + TYPE_AND_CLASS;
    Some((labels.join("."), packet.get(HEADER..end)?))
}

/// 127.0.0.1 for the name that is known, no record of another type; for others, that there is no such name.
fn answer(header: &[u8], question: &[u8], known: bool) -> Vec<u8> {
    let is_answered = known && question.ends_with(&ADDRESS);
    let code = if known { 0 } else { NO_SUCH_NAME };
    let mut answer = header[..2].to_vec();
    // A recursive answer to one question, with this many records.
    answer.extend([
        0x81,
        0x80 | code,
        0,
        1,
        0,
        u8::from(is_answered),
        0,
        0,
        0,
        0,
    ]);
    answer.extend(question);
    if is_answered {
        // The name of the question, its type and class, a minute to live, four bytes.
        answer.extend([0xc0, 0x0c]);
        answer.extend(ADDRESS);
        answer.extend([0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    answer
}
