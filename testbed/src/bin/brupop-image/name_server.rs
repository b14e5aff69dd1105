//! A name server with one name, as much of one as a resolver asks for (RFC 1035).

use anyhow::{Context as _, Result};
use std::net::Ipv4Addr;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// Length of the header, and of a question's type and class.
const HEADER: usize = 12;
const TYPE_AND_CLASS: usize = 4;
/// The type `A`, in the class `IN`.
const ADDRESS: [u8; TYPE_AND_CLASS] = [0, 1, 0, 1];
const NO_SUCH_NAME: u8 = 3;

/// Answers on port 53 of this address until the set is dropped: one name is 127.0.0.1, and there are no others.
pub async fn serve(address: Ipv4Addr, known: &'static str) -> Result<JoinSet<()>> {
    let socket = UdpSocket::bind((address, 53))
        .await
        .with_context(|| format!("port 53 of {address}"))?;
    let mut answering = JoinSet::new();
    answering.spawn(async move {
        let mut packet = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut packet).await {
            let Some((name, question)) = question(&packet[..length]) else {
                continue;
            };
            let answer = answer(&packet[..HEADER], question, name == known);
            // A resolver that has gone asks no more.
            let _ = socket.send_to(&answer, from).await;
        }
    });
    Ok(answering)
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
    let records = u8::from(is_answered);
    answer.extend([0x81, 0x80 | code, 0, 1, 0, records, 0, 0, 0, 0]);
    answer.extend(question);
    if is_answered {
        // The name of the question, its type and class, a minute to live, four bytes.
        answer.extend([0xc0, 0x0c]);
        answer.extend(ADDRESS);
        answer.extend([0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
    }
    answer
}
