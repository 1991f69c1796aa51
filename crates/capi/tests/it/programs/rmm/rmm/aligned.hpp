#pragma once
#include <cstddef>
namespace rmm { constexpr std::size_t CUDA_ALLOCATION_ALIGNMENT{256}; }
