//! This node's shadow as it is known here: from the watch, and from the answers to our own writes.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use brupop_api::{BottlerocketShadow, Item};
use brupop_runtime::errors::describe;
use brupop_runtime::watch_one;
use futures::StreamExt as _;
use kube::api::Api;
use kube::{Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::retry::Retry;

pub type Seen = Option<Arc<BottlerocketShadow>>;

/// The time that the watch may lag behind an answer of the API server before the object is read again.
const LAG: Duration = Duration::from_secs(5);

/// Our copy of the shadow: the newest one known.
#[derive(Debug, Default)]
pub(crate) struct ShadowCopy {
    pub(crate) current: Seen,
    /// When to read the shadow again, unless the watch brings it before: it lags, or a report was refused because the shadow
    /// had changed. A watch of a cluster whose etcd was restored from a snapshot never catches up.
    pub(crate) reread_at: Option<Instant>,
}

impl ShadowCopy {
    /// Returns UID and resource version of the shadow.
    pub(crate) fn version(&self) -> Option<(Option<String>, Option<String>)> {
        let shadow = self.current.as_ref()?;
        Some((shadow.uid(), shadow.resource_version()))
    }

    /// Takes what the watch says, unless the answer to a write of ours was newer.
    pub(crate) fn on_event(&mut self, seen: Seen) {
        if let (Some(ours), Some(theirs)) = (&self.current, &seen)
            && ours.metadata.uid == theirs.metadata.uid
            && revision(ours) > revision(theirs)
        {
            self.reread_at.get_or_insert_with(|| Instant::now() + LAG);
            return;
        }
        self.reread_at = None;
        self.current = seen;
    }

    /// Takes what the API server answered. It was asked after all else was known, so whatever the revision is, nothing newer
    /// is known: etcd gives old revisions once it was restored from a snapshot.
    pub(crate) fn on_answer(&mut self, answer: BottlerocketShadow) {
        if let Some(current) = &self.current
            && current.metadata.uid == answer.metadata.uid
        {
            self.reread_at = None;
            self.current = Some(Arc::new(answer));
        }
    }

    /// A report was refused because the shadow had changed.
    pub(crate) fn reread_after(&mut self, wait: Duration) {
        self.reread_at = self.current.as_ref().map(|_| Instant::now() + wait);
    }

    /// Whether to read the shadow now. If there is no answer, that is tried once more, but not at once.
    pub(crate) fn must_reread(&mut self) -> bool {
        let must = self.reread_at.is_some_and(|at| at <= Instant::now());
        if must {
            self.reread_after(LAG);
        }
        must
    }
}

/// Since 1.35 these are promised to be numbers that grow; before, they were.
fn revision(shadow: &BottlerocketShadow) -> Option<u128> {
    shadow.metadata.resource_version.as_deref()?.parse().ok()
}

/// Watches the shadow of this name for ever, as long as somebody receives.
pub async fn watch(client: Client, namespace: String, name: String, sender: watch::Sender<Seen>) {
    let shadows = Api::<Item<BottlerocketShadow>>::namespaced(client, &namespace);
    let mut events = pin!(watch_one(shadows, &name));
    let mut failing = Retry::new("the watch of the shadow");
    let mut absent = false;
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = sender.closed() => return,
        };
        let seen = match event {
            None => return,
            Some(Err(error)) => {
                failing.failed(&describe(&error));
                continue;
            }
            Some(Ok(None)) => {
                failing.resolved();
                if !std::mem::replace(&mut absent, true) {
                    tracing::info!(
                        shadow = name,
                        "there is no shadow yet; the agent waits for the reconciler to create it"
                    );
                }
                None
            }
            Some(Ok(Some(Item {
                body: Ok(shadow), ..
            }))) => {
                failing.resolved();
                absent = false;
                Some(Arc::new(shadow))
            }
            Some(Ok(Some(Item { body: Err(why), .. }))) => {
                let reason = format!("{name} cannot be read as a BottlerocketShadow v2: {why}");
                failing.failed(&reason);
                None
            }
        };
        sender.send_replace(seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brupop_api::BottlerocketShadowSpec;

    fn shadow(uid: &str, revision: &str) -> BottlerocketShadow {
        let mut shadow = BottlerocketShadow::new("brs-a", BottlerocketShadowSpec::default());
        shadow.metadata.uid = Some(uid.to_owned());
        shadow.metadata.resource_version = Some(revision.to_owned());
        shadow
    }

    fn known(copy: &ShadowCopy) -> Option<(String, String)> {
        copy.current
            .as_ref()
            .map(|shadow| (shadow.uid().unwrap(), shadow.resource_version().unwrap()))
    }

    #[test]
    fn the_newest_wins_whichever_way_it_came() {
        let mut copy = ShadowCopy::default();
        copy.on_answer(shadow("a", "9"));
        assert_eq!(
            known(&copy),
            None,
            "an answer does not bring back what is deleted"
        );
        copy.on_event(Some(Arc::new(shadow("a", "9"))));
        copy.on_answer(shadow("a", "11"));
        assert_eq!(known(&copy), Some(("a".into(), "11".into())));
        copy.on_event(Some(Arc::new(shadow("a", "10"))));
        assert_eq!(
            known(&copy),
            Some(("a".into(), "11".into())),
            "an older event"
        );
        assert!(copy.reread_at.is_some());
        copy.on_event(Some(Arc::new(shadow("a", "11"))));
        assert_eq!(copy.reread_at, None, "the watch lagged");
        copy.on_answer(shadow("a", "10"));
        assert_eq!(
            known(&copy),
            Some(("a".into(), "10".into())),
            "the store has gone back"
        );
        copy.on_event(Some(Arc::new(shadow("b", "10"))));
        assert_eq!(
            known(&copy),
            Some(("b".into(), "10".into())),
            "another object of the name"
        );
        copy.on_answer(shadow("a", "12"));
        assert_eq!(
            known(&copy),
            Some(("b".into(), "10".into())),
            "an answer about the old object"
        );
        copy.on_event(None);
        assert_eq!(known(&copy), None);
    }
}
