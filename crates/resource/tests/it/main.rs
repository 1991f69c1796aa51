//! Resources, tested from outside: one module per subject.
//!
//! What RMM's own tests expect of its resources holds here too. Its cases, and where they are (`heap::` is
//! in `src/reserve/heap/tests.rs`):
//!
//! | case in RMM | test here |
//! |---|---|
//! | `Statistics`: Empty, `test_statistics_disabled` | `statistics::nothing_done_is_nothing_counted` |
//! | AllFreed, PeakAllocations | `statistics::peaks_stay_when_all_is_freed` |
//! | MultiTracking, NegativeInnerTracking | `statistics::freeing_through_the_inner_adaptor_makes_it_negative` |
//! | Nested | `statistics::nested_scopes_know_their_peaks` |
//! | MultiThreaded | `statistics::two_threads_count_together_and_blocks_of_no_bytes_count`, `…a_block_that_changes_hands_is_never_counted_twice` |
//! | `test_context` | `statistics::a_nested_context_counts_for_itself_and_then_for_the_outer_one`, `matrix::every_resource_can_be_current_and_is_again_after_what_was_put_on_it` |
//! | `test_multiple_mr` | `statistics::two_adaptors_count_apart` |
//! | `test_counter_stack` | `statistics::counters_stack` |
//! | `test_current_statistics` | `statistics::a_scope_that_only_frees_is_negative` |
//! | `test_profiler` | `profiler::functions_are_counted_as_in_the_tests_of_rmm` |
//! | `Tracking`: Empty, AllFreed | `tracking::nothing_is_live_at_first`, `…nothing_is_live_once_all_is_given_back` |
//! | AllocationsLeft | `tracking::what_is_left_is_known_without_stacks`, `…what_is_left_is_known_with_stacks` |
//! | MultiTracking, NegativeInnerTracking | `tracking::each_of_two_layers_knows_what_went_through_it`, `…giving_back_another_layers_blocks_takes_nothing_below_zero` |
//! | UntrackedDeallocationDoesNotUnderflow | `tracking::an_untracked_block_is_passed_on_and_not_counted` |
//! | DeallocWrongBytes | `tracking::a_block_given_back_with_a_wrong_size_goes_back_with_the_right_one` |
//! | LogOutstandingAllocations | `tracking::what_is_live_can_be_told_to_the_debug_log` |
//! | MultiThreaded | `tracking::an_address_that_another_thread_is_handed_meanwhile_is_another_block` |
//! | in Python: ten of 1,000 bytes, five freed | `tracking::ten_taken_and_five_given_back_leave_five` |
//! | `Limiting`: TooBig | `limiting::a_request_beyond_the_limit_is_refused` |
//! | UpstreamFailure | `limiting::what_the_upstream_refuses_is_not_counted` |
//! | UnderLimitDueToFrees, OverLimit | `limiting::frees_make_room`, `…a_refusal_changes_nothing` |
//! | in Python: one byte more than 1 MiB | `limiting::a_full_limit_refuses_a_single_byte` |
//! | `FailureCallback`: retries, exceptions, alignment | all of `failure` |
//! | `Callback` | all of `callback` |
//! | `Pool`: ThrowMaxLessThanInitial | `pool::a_maximum_below_the_initial_size_is_refused` |
//! | NonAlignedPoolSize, InitialAndMaxPoolSizeEqual | `pool::sizes_are_multiples_of_256` |
//! | AllocateNinetyPercent, PoolSize | `pool::nearly_all_of_a_device_fits_into_one_block` |
//! | TwoLargeBuffers | `pool::two_large_buffers_share_a_pool` |
//! | ForceGrowth | `pool::growth_asks_for_less_when_the_upstream_refuses`, `…growth_takes_half_of_what_is_left_to_the_maximum`; steps of 256 throughout, where RMM's halves are not |
//! | a cap that cannot be reached | `pool::a_capped_pool_reaches_its_cap` |
//! | DeletedStream | `pool::blocks_of_a_stream_that_ended_are_used_again`, `cuda::a_pool_uses_memory_of_streams_that_are_gone` |
//! | UpstreamDoesntSupportMemInfo | `suballocators::a_pool_over_a_pool_keeps_its_promises`, and pools over pools and over functions in `matrix` |
//! | MultidevicePool | `matrix::pools_of_two_devices_keep_to_their_own_whichever_is_current` |
//! | SharedOwnership, lifetimes of buffers | `matrix::a_buffer_keeps_its_resource_alive` |
//! | Equality, SelfEquality | `matrix::a_clone_is_the_same_resource_and_another_of_its_kind_is_not` |
//! | reinitialize with a maximum of 8 MiB | `matrix::a_buffer_grows_up_to_the_maximum_of_its_pool` |
//! | `Arena`: size classes | `arena::size_classes_are_shared_by_requests_of_nearly_the_same_size`; ours have no largest |
//! | superblocks: split, first fit, coalesce | `heap::what_is_given_back_joins_its_neighbors`, `…pieces_never_overlap_and_all_join_in_the_end`; ours take the nearest size and not the first |
//! | superblocks: acquire, release, merge | `heap::what_another_heap_divided_comes_back_in_its_pieces`, `…pieces_of_two_streams_join_when_settled` |
//! | less than 1 MiB, more than there is | `arena::an_arena_has_at_least_one_mebibyte_and_never_grows` |
//! | Defragment | `arena::pieces_of_many_streams_and_threads_come_together_for_one_large_block` |
//! | DumpLogOnFailure | `arena::a_failure_is_described_in_a_file` |
//! | PerThreadToStreamDealloc | `arena::a_block_of_a_threads_own_stream_can_be_given_back_on_another` |
//! | `Aligned` | `aligned::the_upstream_is_asked_for_what_alignment_needs_and_gets_it_back`, `…blocks_below_the_threshold_pass` |
//! | Async: priming, threshold, two are unequal | `cuda::a_pool_of_the_driver_is_primed_asked_and_trimmed`, `…two_pools_of_the_driver_are_apart_and_each_keeps_what_it_was_told` |
//! | every resource: AllocateDefault, AllocateOnStream | `matrix::words_and_mebibytes_come_and_go_on_every_stream` |
//! | RandomAllocations, MixedRandomAllocationFree | `matrix::random_blocks_in_random_order_all_come_back` |
//! | the same from threads | `matrix::threads_share_every_resource` |
//! | AllocFreeDifferentThreads | `matrix::a_block_may_be_given_back_by_another_thread_on_the_same_stream_or_another` |
//! | SetCurrentDeviceResourceRef | `matrix::every_resource_can_be_current_and_is_again_after_what_was_put_on_it` |
#![expect(unsafe_code, reason = "tests give back what they allocated")]

mod adaptors;
mod aligned;
mod arena;
mod blocks;
mod buffer;
mod callback;
mod csv;
mod cuda;
mod current;
mod debug_log;
mod exit;
mod failure;
mod limiting;
mod log_file;
mod logging;
mod matrix;
mod pool;
mod profiler;
mod statistics;
mod statistics_oracle;
mod statistics_scopes;
mod stub;
mod suballocators;
mod together;
mod tracking;
