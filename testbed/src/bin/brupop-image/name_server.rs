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
            let Some(question) = question(&packet[..length]) else {
                continue;
            };
            let is_known = question.to_ascii_lowercase().starts_with(&labels(known));
            let answer = answer(&packet[..HEADER], question, is_known);
            // A resolver that has gone asks no more.
            let _ = socket.send_to(&answer, from).await;
        }
    });
    Ok(answering)
}

/// The question of a packet: the labels of a name, each after its length and the last one empty; then type and class.
fn question(packet: &[u8]) -> Option<&[u8]> {
    let rest = packet.get(HEADER..)?;
    let end = rest.iter().position(|byte| *byte == 0)? + 1 + TYPE_AND_CLASS;
    rest.get(..end)
}

fn labels(name: &str) -> Vec<u8> {
    let labels = name.split('.').chain([""]);
    let label =
        |label: &str| [&[u8::try_from(label.len()).unwrap_or(0)], label.as_bytes()].concat();
    labels.flat_map(label).collect()
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
