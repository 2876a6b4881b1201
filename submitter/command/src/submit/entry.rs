//! The kernel that a job launches, and its arguments: what the command line leaves out is read from the source.

use gpufleet::schema::{Arg, Dtype, Number};

use super::{Options, SourceText};
use crate::{
    complaint::Complaint,
    signature::{self, Kind, NoOnlyEntry, Parameter, Unreadable},
    spec::{ArgSpec, ArgsSpec},
};

/// A kernel of the submitted program.
#[derive(Debug)]
pub struct Entry<'a> {
    pub name: String,
    /// The source, if the program is CUDA C.
    source: Option<&'a SourceText>,
    compile_options: &'a [String],
}

impl<'a> Entry<'a> {
    /// The kernel that `--entry` names, or else the only one of the program. None for a catalog kernel.
    pub fn of(options: &'a Options, source: Option<&'a SourceText>) -> Result<Option<Self>, Complaint> {
        let is_cuda = options.source.is_some();
        let name = match (&options.entry, source) {
            (Some(name), _) => name.clone(),
            (None, Some(source)) if is_cuda => only_of_source(source, &options.compile_option)?,
            (None, Some(source)) => only_of_ptx(source)?,
            (None, None) => return Ok(None),
        };
        Ok(Some(Self { name, source: source.filter(|_| is_cuda), compile_options: &options.compile_option }))
    }

    /// The arguments, each with its dtype.
    pub fn args(&self, given: &ArgsSpec) -> Result<Vec<Arg>, Complaint> {
        let parameters = self.parameters();
        if let Some(Ok(parameters)) = &parameters
            && parameters.len() != given.0.len()
        {
            let (takes, gives) = (parameters.len(), given.0.len());
            let problem = format!("kernel {} takes {takes} parameters, but --args gives {gives}", self.name);
            return Err(Complaint::bad_input(problem).hint(self.signature(parameters)));
        }
        let typed = given.0.iter().enumerate().map(|(index, arg)| match arg {
            ArgSpec::Typed(arg) => match (arg, &parameters) {
                (Arg::Progress(_), Some(Ok(parameters))) => self.counter(parameters, index).map(|()| arg.clone()),
                _ => Ok(arg.clone()),
            },
            ArgSpec::Untyped { name, value } => match &parameters {
                Some(Ok(parameters)) => self.scalar(parameters, index, name, *value),
                Some(Err(problem)) => Err(self.unreadable(name, problem)),
                None => Err(Complaint::usage(format!("--args: {name} has no dtype, and the program is not CUDA C"))
                    .hint(format!("give its dtype: {name}:i32={value}"))),
            },
        });
        typed.collect()
    }

    fn parameters(&self) -> Option<Result<Vec<Parameter>, Unreadable>> {
        self.source.map(|source| signature::parameters_of_entry(&source.text, &self.name, self.compile_options))
    }

    fn scalar(&self, parameters: &[Parameter], index: usize, name: &str, value: Number) -> Result<Arg, Complaint> {
        let parameter = &parameters[index];
        if parameter.kind != Kind::Scalar {
            let (place, pointer) = (index + 1, &parameter.name);
            let problem = format!(
                "--args: {name}={value} is a number, but parameter {place} of the kernel is the pointer {pointer}"
            );
            return Err(Complaint::bad_input(problem).hint(self.signature(parameters)));
        }
        value.write(parameter.dtype, &mut Vec::new()).map_err(|problem| {
            Complaint::bad_input(format!("--args: {name}: {problem}")).hint(self.signature(parameters))
        })?;
        Ok(Arg::Scalar(parameter.dtype, value))
    }

    /// Checks that the parameter points to a counter that the kernel may increment.
    fn counter(&self, parameters: &[Parameter], index: usize) -> Result<(), Complaint> {
        let parameter = &parameters[index];
        if (parameter.kind, parameter.dtype) == (Kind::Output, Dtype::U64) {
            return Ok(());
        }
        let (place, name) = (index + 1, &parameter.name);
        let problem = format!(
            "--args: @progress is a counter of type unsigned long long*, but parameter {place} of the kernel, {name}, is not"
        );
        Err(Complaint::bad_input(problem).hint(self.signature(parameters)))
    }

    fn signature(&self, parameters: &[Parameter]) -> String {
        format!("the kernel is {}", signature::spelled(&self.name, parameters))
    }

    fn unreadable(&self, name: &str, problem: &Unreadable) -> Complaint {
        let file = self.source.map(|source| source.path.display().to_string()).unwrap_or_default();
        Complaint::bad_input(format!("--args: the dtype of {name} can't be read from {file}: {problem}"))
            .hint(format!("give the dtypes of all numbers, such as {name}:i32=1000"))
    }
}

fn only_of_source(source: &SourceText, compile_options: &[String]) -> Result<String, Complaint> {
    signature::only_entry(&source.text, compile_options).map_err(|problem| {
        let hint = match &problem {
            NoOnlyEntry::None => "write extern \"C\" __global__ before the function to launch".to_owned(),
            NoOnlyEntry::Hidden => "name the kernel: --entry NAME".to_owned(),
            NoOnlyEntry::Several(names) => format!("name one of them: --entry {}", names[0]),
            NoOnlyEntry::Template(name) => format!("name an instance: --entry '{name}<float>'"),
            NoOnlyEntry::Namespace(name) => format!("name it in full: --entry '::NAMESPACE::{name}'"),
        };
        unnamed(source, &problem.to_string()).hint(hint)
    })
}

/// The name after the only `.entry` directive.
fn only_of_ptx(source: &SourceText) -> Result<String, Complaint> {
    let lines = source.text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let words: Vec<&str> = lines.flat_map(|line| line.split(|c: char| c.is_whitespace() || c == '(')).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let mut names: Vec<&str> = words.windows(2).filter(|pair| pair[0] == ".entry").map(|pair| pair[1]).collect();
    names.sort_unstable();
    names.dedup();
    match names.as_slice() {
        [name] => Ok((*name).to_owned()),
        [] => Err(unnamed(source, "it has no kernel").hint("name the kernel: --entry NAME")),
        several => Err(unnamed(source, &format!("it has several kernels: {}", several.join(", ")))
            .hint(format!("name one of them: --entry {}", several[0]))),
    }
}

fn unnamed(source: &SourceText, problem: &str) -> Complaint {
    Complaint::usage(format!("the kernel of {} is not clear without --entry: {problem}", source.path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    const CODE: &str = "extern \"C\" __global__ void scale(float *x, float a, unsigned n) {}";

    fn source(text: &str) -> SourceText {
        SourceText { path: "k.cu".into(), text: text.to_owned() }
    }

    fn args(code: &str, entry: &str, given: &str) -> Result<Vec<Arg>, Complaint> {
        let source = source(code);
        Entry { name: entry.to_owned(), source: Some(&source), compile_options: &[] }.args(&given.parse().unwrap())
    }

    #[test]
    fn numbers_take_the_dtypes_of_the_parameters() {
        let wanted = vec![
            Arg::Buffer("x".to_owned()),
            Arg::Scalar(Dtype::F32, Number::Signed(2)),
            Arg::Scalar(Dtype::U32, Number::Signed(100)),
        ];
        assert_eq!(args(CODE, "scale", "x,a=2,n=100").unwrap(), wanted);
        assert_eq!(args(CODE, "scale", "x,a:float32=2,n:uint32=100").unwrap(), wanted);
        let cpp = CODE.replace("extern \"C\"", "");
        assert_eq!(args(&cpp, "::scale", "x,a=2,n=100").unwrap(), wanted);
        let template = cpp.replace("float", "T").replace("__global__", "template <class T> __global__");
        assert_eq!(args(&template, "scale<float>", "x,a=2,n=100").unwrap(), wanted);
    }

    #[test]
    fn arguments_that_do_not_fit_the_kernel_are_refused_with_its_signature() {
        let signature = "the kernel is scale(x: out f32, a: f32, n: u32)";
        for (given, says) in [
            ("x,a=2", "takes 3 parameters, but --args gives 2"),
            ("x,a=2,n=-1", "n: -1 does not fit u32"),
            ("x,a=1e39,n=1", "does not fit f32"),
            ("n=100,a=2,x", "n=100 is a number, but parameter 1 of the kernel is the pointer x"),
        ] {
            let complaint = args(CODE, "scale", given).unwrap_err();
            assert!(complaint.message.contains(says), "{given}: {}", complaint.message);
            assert_eq!((complaint.exit, complaint.hint.as_deref()), (Exit::BadInput, Some(signature)));
        }
        let opaque = "extern \"C\" __global__ void scale(float4 *x, int n) {}";
        let complaint = args(opaque, "scale", "x,n=1").unwrap_err();
        assert!(complaint.hint.unwrap().contains("n:i32=1000"));
        assert!(args(opaque, "scale", "x,n:i32=1").is_ok(), "with dtypes nothing has to be read");
    }

    #[test]
    fn the_counter_of_the_progress_needs_a_pointer_to_a_64_bit_number() {
        let code = |parameter: &str| format!("extern \"C\" __global__ void train({parameter}, int epochs) {{}}");
        let given = "done=@progress:90,epochs=90";
        for fits in ["unsigned long long *done", "unsigned long long int* done", "uint64_t *done"] {
            assert_eq!(args(&code(fits), "train", given).unwrap()[0], Arg::Progress(90), "{fits}");
        }
        for (other, shown) in [
            ("unsigned *done", "done: out u32"),
            ("long long *done", "done: out i64"),
            ("const unsigned long long *done", "done: in u64"),
            ("unsigned long long done", "done: u64"),
        ] {
            let complaint = args(&code(other), "train", given).unwrap_err();
            assert!(
                complaint.message.ends_with("but parameter 1 of the kernel, done, is not"),
                "{}",
                complaint.message
            );
            assert_eq!(complaint.hint.unwrap(), format!("the kernel is train({shown}, epochs: i32)"));
        }
        let opaque = "extern \"C\" __global__ void train(float4 *x, unsigned long long *done) {}";
        assert!(args(opaque, "train", "x,@progress:90").is_ok(), "the worker checks what can't be read");
    }

    #[test]
    fn the_only_kernel_needs_no_name() {
        assert_eq!(only_of_source(&source(CODE), &[]).unwrap(), "scale");
        let two = CODE.to_owned() + "extern \"C\" __global__ void other() {}";
        let complaint = only_of_source(&source(&two), &[]).unwrap_err();
        assert_eq!((complaint.exit, complaint.hint.as_deref()), (Exit::Usage, Some("name one of them: --entry other")));
        let ptx = "// .entry no(\n.visible .entry k(\n.param .u64 p)\n{ ret; }\n.func f(";
        assert_eq!(only_of_ptx(&source(ptx)).unwrap(), "k");
        assert!(only_of_ptx(&source(&(ptx.to_owned() + ".entry l()"))).unwrap_err().message.contains("k, l"));
        assert!(only_of_ptx(&source(".version 8.0")).is_err());
    }
}
