//! Tells the kubelet's probe that the agent runs. The probe is a second process of this program in the same container: it
//! connects to a socket that has a name and no file, and waits for an answer. An agent that hangs gives none.

use std::io::{self, Read as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;

/// How long the probe waits for an answer: less than the probe's `timeoutSeconds`.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_secs(1);

/// The agent hangs.
#[derive(Debug, thiserror::Error)]
#[error("the agent of the pod {pod} has not answered for {} s", TIMEOUT.as_secs())]
pub struct AgentHangs {
    pod: String,
    source: io::Error,
}

/// Pods have network namespaces of their own, and only processes in the same one can connect.
fn address(pod: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("brupop-agent/{pod}"))
}

/// Answers probes until it is aborted.
///
/// # Errors
/// Nobody can listen at the pod's socket.
pub fn answer_probes(pod: &str) -> io::Result<impl Future<Output = ()> + use<>> {
    let listener = UnixListener::bind_addr(&address(pod)?)?;
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    Ok(async move {
        loop {
            match listener.accept().await {
                // One byte always fits, so nobody who connects can stop this. A probe that has gone needs no answer.
                Ok((mut stream, _)) => drop(stream.write_all(b".").await),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    })
}

/// Asks the agent of this pod whether it runs. An agent that does not listen has just started, or could not: that is no
/// reason to restart it.
///
/// # Errors
/// It listens, and does not answer in time.
pub fn probe(pod: &str) -> Result<(), AgentHangs> {
    let Ok(mut stream) = address(pod).and_then(|address| UnixStream::connect_addr(&address)) else {
        return Ok(());
    };
    stream
        .set_read_timeout(Some(TIMEOUT))
        .and_then(|()| stream.read_exact(&mut [0]))
        .map_err(|source| AgentHangs {
            pod: pod.to_owned(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_an_agent_that_hangs_fails_its_probe() {
        let asked = |pod: &'static str| tokio::task::spawn_blocking(move || probe(pod));
        assert!(asked("nobody").await.unwrap().is_ok());
        let answers = tokio::spawn(answer_probes("runs").unwrap());
        assert!(asked("runs").await.unwrap().is_ok());
        answers.abort();
        let hangs = answer_probes("hangs").unwrap();
        let error = asked("hangs").await.unwrap().unwrap_err();
        assert_eq!(
            error.to_string(),
            "the agent of the pod hangs has not answered for 3 s"
        );
        drop(hangs);
    }
}
