use super::*;
use kube::core::Status;

#[test]
fn a_failing_watch_forgets_and_invents_nothing() {
    let failed = |code| {
        let status = Status { code, ..Status::default() };
        Err(watcher::Error::WatchStartFailed(kube::Error::Api(status.boxed())))
    };
    for before in [None, Some(Found::Unavailable), Some(Found::Available), Some(Found::Gone)] {
        let after = |shown| after(before, Kind::ReplicaSet, shown);
        assert_eq!(after(failed(503)), before);
        assert_eq!(after(failed(429)), before);
        assert_eq!(after(failed(403)), Some(Found::Unknown), "nobody waits for what nobody may see");
        assert_eq!(after(failed(400)), Some(Found::Unknown), "nor for what cannot be asked");
        assert_eq!(after(Ok(None)), Some(Found::Gone));
    }
}
