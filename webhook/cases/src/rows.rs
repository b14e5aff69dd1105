//! The rows, by what they are about.

use crate::row::Row;

/// Rows, each as `"what it says": who, the shadow's (spec, status), what is asked => who refuses, and other fields`.
macro_rules! rows {
    ($($says:literal: $actor:expr, $before:expr, $ask:expr => $verdict:expr
        $(, $field:ident: $value:expr)*;)*) => {
        vec![$($crate::row::Row { $($field: $value,)* ..$crate::row::Row::new($says, $actor, $before, $ask, $verdict) }),*]
    };
}

mod attempts;
mod fields;
mod paper;
mod reconciler;
mod steps;
mod ways;
mod whose;

pub fn table() -> Vec<Row> {
    [
        whose::tokens(),
        whose::accounts(),
        whose::owners(),
        fields::own(),
        fields::foreign(),
        fields::limits(),
        steps::reports(),
        steps::moves(),
        attempts::attempts(),
        attempts::claims(),
        attempts::withdrawals(),
        ways::of_agents(),
        ways::of_others(),
        reconciler::creations(),
        reconciler::specs(),
        reconciler::grants(),
        reconciler::metadata(),
        reconciler::statuses(),
        paper::tokens(),
        paper::objects(),
        paper::kinds(),
        paper::reconciler(),
    ]
    .concat()
}
