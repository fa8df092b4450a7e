//===- DeviceTimer.h - what decoding takes on a GPU -------------*- C++ -*-===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef LADLE_TOOLS_LADLE_DEVICETIMER_H
#define LADLE_TOOLS_LADLE_DEVICETIMER_H

#include "tools/ladle/Measure.h"

namespace ladle::tool {

/// timeDecode() for a program of a GPU. The whole trace lies on the device, and
/// a row reads its token where it is; steps are replays of one graph, timed by
/// the device.
Result<Timing> timeDecodeOnDevice(const Program &program,
                                  const check::Trace &trace,
                                  const TimingOptions &options,
                                  const ProgressFunction &progress);

} // namespace ladle::tool

#endif // LADLE_TOOLS_LADLE_DEVICETIMER_H
