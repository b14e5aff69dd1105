//! Makes calls, unless one about the same object is under way, its result was not seen yet, or there is no room.

use brupop_api::Object;
use futures::FutureExt as _;

use super::calls::{Call, version_of};
use super::memory::in_flight::MaySend;
use super::pass::Pass;
use super::{Completed, Reconciler};
use crate::operation::Reply;

/// The most requests that are under way at once. A request that has no room is decided again when another one is answered.
const MAX_REQUESTS: usize = 32;
/// Conditions may be sent only below this number, so that they never crowd out real work.
const MAX_REQUESTS_BEFORE_CONDITION: usize = 24;

impl Reconciler {
    /// Whether a call about this object may be made now. If not, the pass notes when it may.
    pub(super) fn is_ready(&mut self, pass: &mut Pass<'_>, object: &Object<String>) -> bool {
        let (version, now) = (version_of(object, pass.cluster), self.now());
        match self
            .leading
            .memory
            .in_flight(object)
            .readiness(version, now)
        {
            MaySend::Ready => true,
            MaySend::UnderWay => false,
            MaySend::Until(until) => {
                pass.wake.by(until);
                false
            }
        }
    }

    /// Whether one more condition may be under way.
    pub(super) fn has_room_for_conditions(&self) -> bool {
        self.leading.under_way.len() < MAX_REQUESTS_BEFORE_CONDITION
    }

    /// Makes a call, if none about its object is under way, there is room for it, and it would not once more change
    /// nothing.
    pub(super) fn send(&mut self, pass: &mut Pass<'_>, call: Call) {
        let most = if matches!(call.object, Object::ShadowStatus(_) | Object::PoolStatus(_)) {
            MAX_REQUESTS_BEFORE_CONDITION
        } else {
            MAX_REQUESTS
        };
        if !self.is_ready(pass, &call.object) || self.leading.under_way.len() >= most {
            return;
        }
        let in_flight = self.leading.memory.in_flight(&call.object);
        if in_flight.would_repeat(call.seen, || call.operation.as_ref().ok()?.content()) {
            return;
        }
        in_flight.sent();
        let api = self.api.clone();
        let sent = async move {
            let reply = match &call.operation {
                Ok(operation) => api.send(&call.object, operation).await,
                Err(misfit) => Reply::Failed(misfit.to_string()),
            };
            Completed::Call(Box::new(call), reply)
        };
        self.leading.under_way.push(sent.boxed());
    }
}
