//===- Emit.cpp - ladle emit ----------------------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "passes/Pipelines.h"
#include "tools/ladle/Commands.h"
#include "tools/ladle/Source.h"
#include "llvm/Support/raw_ostream.h"

using namespace ladle;
using namespace ladle::tool;

int ladle::tool::emit(const EmitOptions &options) {
  DecodePipelineOptions pipeline;
  pipeline.capacity = options.source.capacity;
  pipeline.entryType = options.source.entryType;
  for (const std::string &name : options.routes) {
    std::optional<Route> route = symbolizeRoute(name);
    if (!route) {
      llvm::errs() << "error: unknown route '" << name
                   << "'\nnote: routes are recurrent, outer, inner, adjoint "
                      "and kv_only\n";
      return 2;
    }
    pipeline.routes.push_back(*route);
  }
  Source source(options.source, /*showRemarks=*/false);
  if (!source.module)
    return 1;
  mlir::PassManager manager(&source.context);
  if (options.stage == "history") {
    buildSpecPipeline(manager);
  } else if (options.stage == "step") {
    buildStepPipeline(manager, pipeline);
  } else if (options.stage == "kernel") {
    buildCPUPipeline(manager, pipeline);
  } else if (options.stage != "spec") {
    llvm::errs() << "error: unknown stage '" << options.stage
                 << "'\nnote: stages are spec, history, step and kernel\n";
    return 2;
  }
  if (failed(manager.run(*source.module)))
    return 1;
  source.module->print(llvm::outs());
  return 0;
}
