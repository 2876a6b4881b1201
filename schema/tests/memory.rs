//! Decoding takes at most three times the size of the body, for any body.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod allocation;

use gpufleet_schema::{
    Data, DecodeError, Dtype, Encoding,
    bounds::{MESSAGE_BYTES_MAX, TASKS_PER_MESSAGE_MAX},
};
use serde::Serialize;

use allocation::peak_of;

const ID: &str = "0190a5b8-7c00-7000-8000-000000000001";
/// Size of a body: just below a message's maximum, so that doubling allocations waste the most.
const BODY_BYTES: usize = MESSAGE_BYTES_MAX - (1 << 20);
/// Size of a list that goes far beyond its bound.
const LIST_BYTES: usize = 1 << 20;
/// Memory besides the body: error texts, and a list that grows to its bound.
const SLACK_BYTES: usize = 1 << 20;

/// A body that is written as it goes.
#[derive(Clone)]
enum Value {
    Int(i64),
    Float(f64),
    Text(String),
    Map(Vec<(&'static str, Value)>),
    List(Vec<Value>),
    /// A list of this many equal items.
    Many(usize, Box<Value>),
    /// A map of this many keys with equal values.
    Keys(usize, Box<Value>),
}

use Value::{Float, Int, Keys, List, Many, Map, Text};

impl Value {
    fn write(&self, encoding: Encoding, out: &mut Vec<u8>) {
        let scalar = match self {
            Int(value) => encode_scalar(encoding, value),
            Float(value) => encode_scalar(encoding, value),
            Text(value) => encode_scalar(encoding, value),
            Map(entries) => {
                return write_map(encoding, entries.iter().map(|(key, value)| (key.to_string(), value)), out);
            }
            Keys(count, value) => {
                return write_map(encoding, (0..*count).map(|key| (format!("{key:x}"), &**value)), out);
            }
            List(items) => return write_list(encoding, items.iter().map(|item| encode(encoding, item)), out),
            Many(count, value) => {
                let item = encode(encoding, value);
                return write_list(encoding, std::iter::repeat_n(item, *count), out);
            }
        };
        out.extend(scalar);
    }
}

fn encode_scalar<T: Serialize>(encoding: Encoding, value: &T) -> Vec<u8> {
    match encoding {
        Encoding::MessagePack => rmp_serde::to_vec(value).unwrap(),
        Encoding::Json => serde_json::to_vec(value).unwrap(),
    }
}

fn write_list(encoding: Encoding, items: impl ExactSizeIterator<Item = Vec<u8>>, out: &mut Vec<u8>) {
    open(encoding, (0x90, 0xdd, b'['), items.len(), out);
    for (index, item) in items.enumerate() {
        if index > 0 && encoding == Encoding::Json {
            out.push(b',');
        }
        out.extend(item);
    }
    close(encoding, b']', out);
}

fn write_map<'a>(encoding: Encoding, entries: impl ExactSizeIterator<Item = (String, &'a Value)>, out: &mut Vec<u8>) {
    open(encoding, (0x80, 0xdf, b'{'), entries.len(), out);
    for (index, (key, value)) in entries.enumerate() {
        if index > 0 && encoding == Encoding::Json {
            out.push(b',');
        }
        out.extend(encode_scalar(encoding, &key));
        if encoding == Encoding::Json {
            out.push(b':');
        }
        value.write(encoding, out);
    }
    close(encoding, b'}', out);
}

/// Starts a list or map, with MessagePack's markers for short and long ones or with JSON's bracket.
fn open(encoding: Encoding, (short, long, bracket): (u8, u8, u8), len: usize, out: &mut Vec<u8>) {
    match (encoding, len) {
        (Encoding::Json, _) => out.push(bracket),
        (Encoding::MessagePack, 0..16) => out.push(short | len as u8),
        (Encoding::MessagePack, _) => {
            out.push(long);
            out.extend((len as u32).to_be_bytes());
        }
    }
}

fn close(encoding: Encoding, bracket: u8, out: &mut Vec<u8>) {
    if encoding == Encoding::Json {
        out.push(bracket);
    }
}

fn encode(encoding: Encoding, value: &Value) -> Vec<u8> {
    let mut body = Vec::new();
    value.write(encoding, &mut body);
    body
}

fn text(value: &str) -> Value {
    Text(value.to_owned())
}

/// Returns how many such items make a body of the wanted size.
fn count_of(encoding: Encoding, body_bytes: usize, item: &Value) -> usize {
    let comma = usize::from(encoding == Encoding::Json);
    body_bytes / (encode(encoding, item).len() + comma)
}

fn filling(encoding: Encoding, body_bytes: usize, item: Value) -> Value {
    Many(count_of(encoding, body_bytes, &item), Box::new(item))
}

fn task(fields: Vec<(&'static str, Value)>) -> Value {
    let program = Map(vec![("catalog", text("k"))]);
    let mut task = vec![("version", Int(1)), ("job_id", text(ID)), ("program", program)];
    task.extend(fields);
    Map(task)
}

fn buffer(data: Value) -> Value {
    Map(vec![
        ("data", Map(vec![("inline", data)])),
        ("name", text("x")),
        ("dtype", text("u8")),
        ("shape", List(vec![Int(1)])),
    ])
}

/// Structs may be written as lists, which is the shortest form.
fn launch() -> Value {
    List(vec![text(""), Map(vec![("cover", List(vec![]))])])
}

fn arg() -> Value {
    Map(vec![("i8", Int(0))])
}

/// A list of tasks with as many launches, each with as many arguments, as one may have.
fn lists_in_lists(encoding: Encoding, launches: usize, args: usize) -> Value {
    let launch =
        List(vec![text(""), Map(vec![("cover", List(vec![]))]), text("auto"), Int(0), Many(args, Box::new(arg()))]);
    let task = task(vec![("launches", Many(launches, Box::new(launch)))]);
    let count = count_of(encoding, BODY_BYTES, &task).min(1024);
    Many(count, Box::new(task))
}

/// Bodies of different kinds, each with its description.
fn bodies(encoding: Encoding) -> Vec<(&'static str, Value)> {
    let fill = |item| filling(encoding, LIST_BYTES, item);
    let fill_up = |item| filling(encoding, BODY_BYTES, item);
    let inline = |item| task(vec![("buffers", List(vec![buffer(item)]))]);
    let nested = (0..20).fold(Int(1), |value, _| List(vec![value]));
    let launch_with = |field, value| {
        let grid = ("grid", Map(vec![("cover", List(vec![Int(1)]))]));
        let launch =
            Map(vec![("entry", text("k")), if field == "grid" { ("repeat", Int(1)) } else { grid }, (field, value)]);
        task(vec![("launches", List(vec![launch]))])
    };
    let long =
        |unit: &str| Text(unit.repeat(BODY_BYTES / serde_json::to_vec(unit).unwrap().len().saturating_sub(2).max(1)));
    let count = |item: &Value| count_of(encoding, LIST_BYTES, item);
    vec![
        ("integers of one byte", inline(fill_up(Int(1)))),
        ("floats", inline(fill_up(Float(0.1)))),
        ("special floats", inline(fill(text("NaN")))),
        ("nested lists in place of numbers", inline(fill(nested.clone()))),
        ("an unknown field of nested lists", task(vec![("new", fill(nested))])),
        ("base64", task(vec![("buffers", List(vec![buffer(Text("QUFB".repeat(BODY_BYTES / 4)))]))])),
        (
            "a list of numbers for a cubin",
            Map(vec![("version", Int(1)), ("job_id", text(ID)), ("program", Map(vec![("cubin", fill(Int(7)))]))]),
        ),
        (
            "a long source with line ends",
            Map(vec![
                ("version", Int(1)),
                ("job_id", text(ID)),
                ("program", Map(vec![("source", Map(vec![("code", long("int x;\n"))]))])),
            ]),
        ),
        ("tiny buffers", task(vec![("buffers", fill(List(vec![text(""), text("u8"), List(vec![])])))])),
        (
            "extents",
            task(vec![(
                "buffers",
                List(vec![Map(vec![("name", text("x")), ("dtype", text("u8")), ("shape", fill(Int(1)))])]),
            )]),
        ),
        ("tiny launches", task(vec![("launches", fill(launch()))])),
        ("tiny arguments of a launch", launch_with("args", fill(arg()))),
        ("a grid of many dimensions", launch_with("grid", Map(vec![("cover", fill(Int(1)))]))),
        ("a block of many dimensions", launch_with("block", Map(vec![("threads", fill(Int(1)))]))),
        ("outputs without a name", task(vec![("outputs", fill(text("")))])),
        ("labels", task(vec![("labels", Keys(count(&text("abcdef")), Box::new(text(""))))])),
        ("arguments", task(vec![("arguments", Keys(count(&text("abcdef")), Box::new(Int(1))))])),
        ("a long name", task(vec![("name", long("a"))])),
        ("a long name with escapes", task(vec![("name", long("a\n"))])),
        ("more tasks than a message may carry", fill(task(vec![]))),
        ("empty maps", fill(Map(vec![]))),
        ("tasks with many launches", lists_in_lists(encoding, 1024, 0)),
        ("tasks with many arguments", lists_in_lists(encoding, 16, 512)),
        (
            "tasks with many buffers",
            fill_up(task(vec![("buffers", Many(256, Box::new(List(vec![text(""), text("u8"), List(vec![])]))))])),
        ),
        ("tasks with many outputs", fill_up(task(vec![("outputs", Many(256, Box::new(text(""))))]))),
    ]
}

/// Decodes and checks a body, and describes the outcome.
fn decode(encoding: Encoding, body: &[u8]) -> String {
    let decoded = match encoding.decode_tasks(body) {
        Ok(tasks) => tasks
            .iter()
            .map(|task| task.check().map_or_else(|problem| problem.to_string(), |()| "fine".to_owned()))
            .next(),
        Err(problem) => Some(problem.to_string()),
    };
    decoded.unwrap_or_default()
}

fn take_at_most_three_times(encoding: Encoding) {
    for (what, value) in bodies(encoding) {
        let body = encode(encoding, &value);
        assert!(body.len() > LIST_BYTES / 2, "{what} in {encoding} is only {} bytes long", body.len());
        let (taken, told) = peak_of(|| decode(encoding, &body));
        let factor = taken as f64 / body.len() as f64;
        println!("{factor:5.2} {encoding} {what}: {told:.100}");
        assert!(taken as usize <= 3 * body.len() + SLACK_BYTES, "{factor:.2} times for {what} in {encoding}: {told}");
    }
}

#[test]
fn no_messagepack_takes_more_than_three_times_its_size() {
    take_at_most_three_times(Encoding::MessagePack);
}

#[test]
fn no_json_takes_more_than_three_times_its_size() {
    take_at_most_three_times(Encoding::Json);
}

#[test]
fn heads_of_a_body_that_is_all_heads_take_little() {
    for encoding in [Encoding::MessagePack, Encoding::Json] {
        let body = encode(encoding, &filling(encoding, LIST_BYTES, Map(vec![("version", Int(7))])));
        let (taken, heads) = peak_of(|| encoding.decode_heads(&body));
        assert_eq!(heads.len(), TASKS_PER_MESSAGE_MAX);
        assert!(taken as usize <= SLACK_BYTES, "{taken} bytes");
    }
}

#[test]
fn a_list_of_numbers_is_not_copied_and_becomes_elements_of_its_dtype() {
    const COUNT: usize = 1 << 20;
    for encoding in [Encoding::MessagePack, Encoding::Json] {
        let buffer = Map(vec![
            ("data", Map(vec![("inline", Many(COUNT, Box::new(Int(5))))])),
            ("name", text("x")),
            // The dtype comes after the numbers.
            ("dtype", text("f64")),
            ("shape", List(vec![Int(COUNT as i64)])),
        ]);
        let body = encode(encoding, &task(vec![("buffers", List(vec![buffer]))]));
        let (taken, items) = peak_of(|| encoding.decode_tasks(&body).unwrap());
        let task = &items.as_slice()[0];
        let (checking, ()) = peak_of(|| task.check().unwrap());
        assert!(taken + checking < 16 << 10, "{taken} and {checking} bytes in {encoding}");
        let Data::Inline(inline) = &task.buffers[0].data else { panic!("{task:?}") };
        assert_eq!(inline.resolved_len(Dtype::F64), 8 * COUNT);
        let mut elements = vec![0; 8 * COUNT];
        let (copying, ()) = peak_of(|| inline.copy_to(Dtype::F64, &mut elements).unwrap());
        assert!(copying < 1 << 10, "{copying} bytes");
        assert!(elements.chunks_exact(8).all(|element| element == 5.0_f64.to_le_bytes()));
        let (cloning, _clone) = peak_of(|| task.clone());
        assert!(cloning < 16 << 10, "{cloning} bytes for a clone");
    }
}

#[test]
fn a_list_beyond_its_bound_is_refused_with_its_field_and_its_neighbours_are_not() {
    for encoding in [Encoding::MessagePack, Encoding::Json] {
        let fields = [
            ("launches", Many(5000, Box::new(launch()))),
            ("outputs", Many(5000, Box::new(text("")))),
            ("labels", Keys(5000, Box::new(text("")))),
            ("buffers", Many(5000, Box::new(List(vec![text(""), text("u8"), List(vec![])])))),
            ("arguments", Keys(5000, Box::new(Int(1)))),
        ];
        for (field, value) in fields {
            let body = encode(encoding, &List(vec![task(vec![(field, value)]), task(vec![])]));
            let tasks = encoding.decode_tasks(&body).unwrap().into_vec();
            let problem = tasks[0].check().unwrap_err();
            assert_eq!(problem.field, field);
            assert!(problem.problem.contains("the maximum is"), "{problem}");
            tasks[1].check().unwrap();
        }
    }
}

#[test]
fn a_body_whose_lists_multiply_is_refused_with_what_to_do() {
    for encoding in [Encoding::MessagePack, Encoding::Json] {
        let body = encode(encoding, &lists_in_lists(encoding, 1024, 0));
        let problem = encoding.decode_tasks(&body).unwrap_err();
        assert!(matches!(problem, DecodeError::Malformed { .. }), "{problem}");
        assert!(problem.to_string().contains("send fewer tasks per message"), "{problem}");
        assert_eq!(encoding.decode_heads(&body)[0].job_id.unwrap().to_string(), ID, "its producer can be answered");
        // The next body that this thread decodes has its own bound.
        encoding.decode_tasks(&encode(encoding, &task(vec![]))).unwrap();
    }
}
