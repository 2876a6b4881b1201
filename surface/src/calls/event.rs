//! Events.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_event {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            make 2000 cuEventCreate(event: New<Event>, flags: u32);
            ask 4000 cuEventDestroy_v2(event: Gone<Event>) old cuEventDestroy;
            ask 2000 cuEventQuery(event: Event);
            wait 2000 cuEventSynchronize(event: Event);
            ask 2000 cuEventElapsedTime(milliseconds: Out<f32>, start: Event, end: Event);
            ask 12080 cuEventElapsedTime_v2(milliseconds: Out<f32>, start: Event, end: Event);
            post 2000 cuEventRecord(event: Event, stream: Stream) twin ptsz;
            ask 11010 cuEventRecordWithFlags(event: Event, stream: Stream, flags: u32) twin ptsz;
        }
    };
}
