use super::*;
use kube::Error;
use kube::core::ObjectList;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The objects and the rest of what arrives in these parts.
fn cut<'a>(
    mut cutter: Cutter,
    parts: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Value>, serde_json::Result<Value>) {
    let mut found = vec![];
    for part in parts {
        let take = |object: &[u8]| {
            found.push(serde_json::from_slice(object).map_err(Error::SerdeError)?);
            Ok(())
        };
        cutter.cut(part, take).unwrap();
    }
    (found, serde_json::from_slice(cutter.rest()))
}

fn is_list(rest: serde_json::Result<Value>) -> bool {
    rest.is_ok_and(|rest| serde_json::from_value::<ObjectList<Value>>(rest).is_ok())
}

/// Any JSON, with what could be taken for the end of a string or of an object.
fn values() -> impl Strategy<Value = Value> {
    let texts = "[a\"\\\\{}\\[\\],:\u{e9}\n ]{0,6}";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        texts.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(texts, inner, 0..4)
                .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
        ]
    })
}

fn objects() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec(
        values().prop_map(|value| json!({"metadata": {"name": "a"}, "spec": value})),
        0..6,
    )
}

fn text(list: &Value, pretty: bool) -> Vec<u8> {
    if pretty {
        serde_json::to_vec_pretty(list).unwrap()
    } else {
        serde_json::to_vec(list).unwrap()
    }
}

proptest! {
    #[test]
    fn each_object_is_cut_out_wherever_the_answer_is_parted(
        objects in objects(), metadata in values(), pretty: bool, size in 1..40_usize,
    ) {
        let mut list = json!({"apiVersion": "v1", "items": objects, "kind": "PodList",
            "metadata": {"resourceVersion": "7", "other": metadata}});
        let text = text(&list, pretty);
        let (found, rest) = cut(Cutter::of_list(), text.chunks(size));
        prop_assert_eq!(&found, &objects);
        list["items"] = vec![Value::Null; objects.len()].into();
        prop_assert_eq!(rest.unwrap(), list);
    }

    #[test]
    fn each_change_is_cut_out_wherever_the_answer_is_parted(objects in objects(), pretty: bool, size in 1..40_usize) {
        let text: Vec<u8> = objects.iter().flat_map(|object| [text(object, pretty), b"\n".to_vec()].concat()).collect();
        let (found, rest) = cut(Cutter::of_watch(), text.chunks(size));
        prop_assert_eq!(found, objects);
        prop_assert!(rest.is_err(), "nothing is kept of it");
    }

    #[test]
    fn a_list_that_breaks_off_is_none(objects in objects(), at: prop::sample::Index) {
        let text = text(&json!({"items": objects, "kind": "PodList", "metadata": {}}), false);
        let (found, rest) = cut(Cutter::of_list(), [&text[..at.index(text.len())]]);
        prop_assert!(found.len() <= objects.len() && found == objects[..found.len()]);
        prop_assert!(!is_list(rest));
    }

    #[test]
    fn nothing_makes_it_panic(bytes in prop::collection::vec(prop::sample::select(b"{}[]\",:\\a1 ".to_vec()), 0..200)) {
        Cutter::of_list().cut(&bytes, |_| Ok(())).unwrap();
        let _ = Cutter::of_watch().cut(&bytes, |_| Ok(()));
    }
}

/// As many holes as objects: that is how it is known that all of them were cut out.
#[test]
fn only_objects_leave_holes() {
    for (text, objects, holes) in [
        (r#"{"items": [{}, {}]}"#, 2, Some(2)),
        // In the order of API servers.
        (
            r#"{"kind":"L","metadata":{"x":[{"a":[{}]}]},"items":[{"b":[{}]},{}]}"#,
            2,
            Some(2),
        ),
        (r#"{"items":[1,2]}"#, 0, Some(2)),
        (r#"{"items":[null]}"#, 0, Some(1)),
        (r#"{"items":[{},null]}"#, 1, Some(2)),
        (r#"{"items":["{","}"]}"#, 0, Some(2)),
        (r#"{"warnings":[{}],"items":[]}"#, 1, Some(0)),
        (r#"{"items":[{},,]}"#, 1, None),
        (r#"{"items":[{}{}]}"#, 2, None),
        (r#"{"items": [], "metadata": {}}"#, 0, Some(0)),
        (r#"{"metadata": {}, "items": null}"#, 0, Some(0)),
        (r#"{"items":[{}]}}"#, 1, None),
        (r#"{"items":[{}"#, 1, None),
        ("{}", 0, None),
        ("[", 0, None),
        ("", 0, None),
    ] {
        let (found, rest) = cut(Cutter::of_list(), [text.as_bytes()]);
        let list = rest
            .ok()
            .and_then(|rest| serde_json::from_value::<ObjectList<Value>>(rest).ok());
        assert_eq!(
            (found.len(), list.map(|list| list.items.len())),
            (objects, holes),
            "{text}"
        );
    }
}

/// Whatever the API server sends, no more than this is kept of it.
#[test]
fn an_object_without_end_is_not_read() {
    for begin in [r#"{"items": [{"a": ""#, r#"{"a": ""#] {
        let mut cutter = Cutter::of_list();
        cutter.cut(begin.as_bytes(), |_| Ok(())).unwrap();
        let part = vec![b'x'; 1 << 20];
        let fits = (0..100)
            .take_while(|_| cutter.cut(&part, |_| Ok(())).is_ok())
            .count();
        assert_eq!(fits, 15, "{begin}");
        assert!(cutter.object.len() + cutter.rest.len() <= LONGEST + 20);
    }
}

#[test]
fn a_watch_brings_objects_only() {
    for bytes in ["null", "{}\n\"{}\"", "}", "1", "{}x"] {
        assert!(
            Cutter::of_watch()
                .cut(bytes.as_bytes(), |_| Ok(()))
                .is_err(),
            "{bytes}"
        );
    }
}
