//! Every value survives encoding and decoding in both encodings.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use gpufleet_schema::{
    Arg, AttemptState, BlobDigest, Block, Buffer, Data, Dtype, Encoding, Excerpt, Failure, FailureCode, Grid,
    HostProgram, Inline, JobId, LargeOutputs, Launch, Limits, Number, OneOrMany, Output, OutputData, OutputOf,
    PrintfOutput, Program, Reply, Requires, Signature, Task, Timings, TraceContext, Verdict,
};
use proptest::{collection::vec, option, prelude::*, sample::select};

fn text() -> impl Strategy<Value = String> {
    "[a-zäß\u{4e2d}\"\\\\ ,{}\\[\\]]{1,12}"
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        any::<i64>().prop_map(Number::from),
        any::<u64>().prop_map(Number::from),
        any::<bool>().prop_map(Number::from),
        any::<f64>().prop_filter("NaN equals nothing", |value| !value.is_nan()).prop_map(Number::from),
        select(vec![f64::INFINITY, f64::NEG_INFINITY]).prop_map(Number::from),
    ]
}

fn dtype() -> impl Strategy<Value = Dtype> {
    select(Dtype::ALL.to_vec())
}

fn bytes() -> impl Strategy<Value = Inline<'static>> {
    vec(any::<u8>(), 0..64).prop_map(Inline::from)
}

fn digest() -> impl Strategy<Value = BlobDigest> {
    any::<[u8; 4]>().prop_map(|bytes| BlobDigest::of(&bytes))
}

fn output_data() -> impl Strategy<Value = OutputData<'static>> {
    prop_oneof![bytes().prop_map(OutputData::Inline), digest().prop_map(OutputData::Blob)]
}

fn data() -> impl Strategy<Value = Data<'static>> {
    prop_oneof![
        Just(Data::Zeros),
        number().prop_map(Data::Fill),
        bytes().prop_map(Data::Inline),
        vec(number(), 0..5).prop_map(|numbers| Data::Inline(numbers.into())),
        digest().prop_map(Data::Blob),
        text().prop_map(|name| Data::Output(OutputOf { job: JobId::new(), name })),
    ]
}

fn buffer() -> impl Strategy<Value = Buffer<'static>> {
    (text(), dtype(), vec(any::<u64>(), 0..4), data(), any::<bool>())
        .prop_map(|(name, dtype, shape, data, share)| Buffer { share, ..Buffer::new(name, dtype, shape, data) })
}

fn program() -> impl Strategy<Value = Program<'static>> {
    prop_oneof![
        text().prop_map(Program::Catalog),
        (text(), vec(text(), 0..3)).prop_map(|(code, options)| Program::Source { code: code.into(), options }),
        text().prop_map(|ptx| Program::Ptx(ptx.into())),
        bytes().prop_map(Program::Cubin),
        (text(), option::of(any::<u64>())).prop_map(|(label, idle_limit_ms)| Program::Session { label, idle_limit_ms }),
        host_program().prop_map(Program::Host),
    ]
}

fn host_program() -> impl Strategy<Value = HostProgram> {
    let variables = vec((text(), text()), 0..3).prop_map(|pairs| pairs.into_iter().collect());
    let place = (option::of(text()), option::of(text()));
    (vec(text(), 0..4), place, variables, vec(text(), 0..3), any::<bool>()).prop_map(
        |(command, (environment, image), variables, download, network)| HostProgram {
            command,
            environment,
            image,
            variables,
            download,
            network,
        },
    )
}

fn launch() -> impl Strategy<Value = Launch> {
    let grid =
        prop_oneof![vec(any::<u64>(), 0..4).prop_map(Grid::Cover), vec(any::<u32>(), 0..4).prop_map(Grid::Blocks),];
    let block = prop_oneof![Just(Block::Auto), vec(any::<u32>(), 0..4).prop_map(Block::Threads)];
    let arg = prop_oneof![
        text().prop_map(Arg::Buffer),
        (text(), 1_u64..).prop_map(|(name, offset)| Arg::BufferAt { name, offset }),
        (dtype(), number()).prop_map(|(dtype, number)| Arg::Scalar(dtype, number)),
        (vec(any::<u8>(), 0..40), any::<u32>()).prop_map(|(bytes, align)| Arg::Bytes { bytes, align }),
        (1_u64..).prop_map(Arg::Progress),
    ];
    let together = (any::<bool>(), vec(any::<u32>(), 0..4));
    (text(), grid, block, any::<u32>(), vec(arg, 0..4), any::<u32>(), together).prop_map(
        |(entry, grid, block, shared_bytes, args, repeat, (cooperative, cluster))| Launch {
            entry,
            grid,
            block,
            shared_bytes,
            args,
            repeat,
            cooperative,
            cluster,
        },
    )
}

fn limits() -> impl Strategy<Value = Limits> {
    (option::of(any::<u64>()), option::of(any::<u64>()), option::of(any::<u32>()), option::of(any::<u64>())).prop_map(
        |(time_limit_ms, queue_limit_ms, attempts_max, memory_bytes_max)| Limits {
            time_limit_ms,
            queue_limit_ms,
            attempts_max,
            memory_bytes_max,
        },
    )
}

fn requires() -> impl Strategy<Value = Requires> {
    (option::of(any::<[u32; 2]>()), option::of(any::<u64>()), option::of(text())).prop_map(
        |(compute_capability_min, memory_bytes_min, device)| Requires {
            compute_capability_min,
            memory_bytes_min,
            device,
        },
    )
}

fn task() -> impl Strategy<Value = Task<'static>> {
    let texts = (option::of(text()), vec((text(), text()), 0..3), option::of("[a-z]{1,8}"), option::of(any::<i64>()));
    let body = (program(), vec((text(), number()), 0..3), vec(buffer(), 0..3), vec(launch(), 0..3), vec(text(), 0..3));
    let signature = option::of((text(), text()).prop_map(|(key, value)| Signature { key, value }));
    let rest = (
        limits(),
        requires(),
        signature,
        select(vec![LargeOutputs::Inline, LargeOutputs::Blob]),
        option::of(any::<u64>()),
    );
    (texts, body, rest).prop_map(
        |(
            (name, labels, reply, submitted_ms),
            (program, arguments, buffers, launches, outputs),
            (limits, requires, signature, large_outputs, keep_ms),
        )| {
            Task {
                version: 1,
                job_id: JobId::new(),
                name,
                labels: labels.into_iter().collect::<BTreeMap<_, _>>(),
                program,
                signature,
                arguments: arguments.into_iter().collect(),
                buffers,
                launches,
                outputs,
                large_outputs,
                keep_ms,
                limits,
                requires,
                reply: reply.map(|name| name.parse().unwrap()),
                submitted_ms,
                traceparent: submitted_ms.map(|ms| TraceContext::new(1, ms.unsigned_abs().max(1), ms > 0)),
            }
        },
    )
}

fn reply() -> impl Strategy<Value = Reply<'static>> {
    let output = (text(), dtype(), vec(any::<u64>(), 0..3), output_data())
        .prop_map(|(name, dtype, shape, data)| Output { name, dtype, shape, data });
    let excerpt = (any::<u32>(), text()).prop_map(|(first_line, text)| Excerpt { first_line, text });
    let failure = (text(), option::of(text()), option::of(any::<u32>()), option::of(excerpt));
    let failure = failure.prop_map(|(message, detail, line, source)| Failure {
        verdict: Verdict::Device,
        code: FailureCode::KernelFault,
        message,
        detail,
        line,
        source,
    });
    let timings = (any::<u64>(), vec(any::<u64>(), 0..3)).prop_map(|(queue_us, launches_us)| Timings {
        queue_us,
        launches_us,
        ..Timings::default()
    });
    let printed = (text(), any::<u64>(), any::<bool>());
    let printed = printed.prop_map(|(text, dropped_bytes, is_tail)| PrintfOutput { text, dropped_bytes, is_tail });
    let state = select(AttemptState::ALL.to_vec());
    (any::<u32>(), state, vec(output, 0..3), option::of(failure), timings, option::of(printed)).prop_map(
        |(attempt, state, outputs, failure, timings, printf_output)| Reply {
            version: 1,
            job_id: failure.as_ref().is_none_or(|failure| failure.line.is_some()).then(JobId::new),
            attempt,
            state,
            failure,
            outputs,
            timings,
            ran_on: None,
            printf_output,
            session: None,
        },
    )
}

fn one_or_many<T: Clone + std::fmt::Debug>(item: impl Strategy<Value = T>) -> impl Strategy<Value = OneOrMany<T>> {
    vec(item, 0..4).prop_map(|mut items| match items.len() {
        1 => OneOrMany::One(items.remove(0)),
        _ => OneOrMany::Many(items),
    })
}

proptest! {
    #[test]
    fn tasks_come_back_as_they_went(tasks in one_or_many(task())) {
        for encoding in [Encoding::MessagePack, Encoding::Json] {
            let body = encoding.encode_tasks(&tasks).unwrap();
            prop_assert_eq!(&encoding.decode_tasks(&body).unwrap(), &tasks);
            for task in tasks.iter() {
                // Only that it returns: most of these tasks make no sense.
                let _ = task.check();
            }
        }
    }

    #[test]
    fn each_task_of_a_list_is_found_where_it_stands(tasks in vec(task(), 0..5)) {
        for encoding in [Encoding::MessagePack, Encoding::Json] {
            let alone: Vec<_> =
                tasks.iter().map(|task| encoding.encode_tasks(&OneOrMany::One(task.clone())).unwrap()).collect();
            let list = encoding.encode_tasks(&OneOrMany::Many(tasks.clone())).unwrap();
            prop_assert_eq!(encoding.items(&list), alone.iter().map(Vec::as_slice).collect::<Vec<_>>());
            prop_assert!(alone.iter().all(|body| encoding.items(body) == [body.as_slice()]));
        }
    }

    #[test]
    fn replies_come_back_as_they_went(replies in one_or_many(reply())) {
        for encoding in [Encoding::MessagePack, Encoding::Json] {
            let body = encoding.encode_replies(&replies).unwrap();
            prop_assert_eq!(&encoding.decode_replies(&body).unwrap(), &replies);
        }
    }

    #[test]
    fn a_number_is_stored_exactly_or_refused(value in any::<i64>(), dtype in dtype()) {
        let mut bytes = Vec::new();
        if Number::from(value).write(dtype, &mut bytes).is_ok() {
            prop_assert_eq!(bytes.len(), dtype.size());
            match dtype {
                Dtype::I8 => prop_assert_eq!(i64::from(bytes[0] as i8), value),
                Dtype::U16 => prop_assert_eq!(i64::from(u16::from_le_bytes([bytes[0], bytes[1]])), value),
                Dtype::I64 => prop_assert_eq!(i64::from_le_bytes(bytes.try_into().unwrap()), value),
                _ => {}
            }
        } else {
            prop_assert!(bytes.is_empty(), "a refused number leaves nothing behind");
        }
    }
}
