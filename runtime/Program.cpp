//===- Program.cpp - a compiled recurrence --------------------------------===//
//
// Part of Ladle, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ladle/program.h"
#include "runtime/Kernels.h"
#include "runtime/Text.h"
#include "runtime/cuda/GpuCode.h"

#include <set>

using namespace ladle;

/// Heads first, positive, of a rank that a descriptor has room for.
static bool isValidShape(std::span<const int64_t> shape, int64_t heads) {
  if (shape.empty() || shape.size() > 3)
    return false;
  for (int64_t size : shape)
    if (size < 1)
      return false;
  return heads % shape.front() == 0;
}

static Status invalid(const ProgramImpl &impl, const std::string &reason) {
  return Status(ErrorCode::InvalidArgument,
                fmt::format("program '{}': {}", impl.signature.name, reason));
}

static Status checkSignature(const ProgramImpl &impl) {
  const Signature &signature = impl.signature;
  if (signature.heads < 1 || impl.headGroup < 1 ||
      signature.heads % impl.headGroup != 0)
    return invalid(impl, fmt::format("{} heads in groups of {}",
                                     signature.heads, impl.headGroup));
  std::set<std::string_view> names;
  for (const std::vector<TensorSpec> *specs :
       {&signature.params, &signature.tokens, &signature.outputs,
        &signature.carries, &impl.fields})
    for (const TensorSpec &spec : *specs) {
      if (!isValidShape(spec.shape, signature.heads))
        return invalid(impl, fmt::format("'{}' has the shape {}", spec.name,
                                         shapeText(spec.shape)));
      // The fields are named by the compiler, in a space of their own.
      if (specs != &impl.fields && !names.insert(spec.name).second)
        return invalid(impl, fmt::format("two of '{}'", spec.name));
    }
  for (const StateSpec &spec : signature.states)
    if (!isValidShape(spec.shape(), signature.heads) || !isFloat(spec.dtype) ||
        !names.insert(spec.name).second)
      return invalid(impl, fmt::format("state '{}' is no state", spec.name));
  return Status();
}

static Status checkKernels(const ProgramImpl &impl) {
  if (impl.drafts < 0 || impl.drafts > maxDrafts ||
      (impl.capacity && impl.capacity < 2 * impl.drafts))
    return invalid(impl, fmt::format("a buffer of {} entries for {} drafts",
                                     impl.capacity, impl.drafts));
  if (impl.page < 0)
    return invalid(impl, fmt::format("a buffer of {} entries in pages of {}",
                                     impl.capacity, impl.page));
  if (impl.foldsByChunk && (impl.capacity != impl.chunk || impl.drafts > 0))
    return invalid(impl, fmt::format("a buffer of {} entries for chunks of {}",
                                     impl.capacity, impl.chunk));
  for (const RouteKernels &kernels : impl.routes) {
    if (impl.gpu) {
      if (!kernels.gpu || kernels.gpu->step.empty())
        return invalid(impl, fmt::format("route '{}' has no kernel for {}",
                                         toString(kernels.route),
                                         toString(impl.gpu->device.id())));
      continue;
    }
    if (!kernels.decode)
      return invalid(impl, fmt::format("route '{}' has no kernel for decode",
                                       toString(kernels.route)));
    if (kernels.usesBuffer &&
        (!kernels.decodeFold || !kernels.fold || impl.capacity < 1))
      return invalid(impl, fmt::format("route '{}' has a buffer of {} and "
                                       "lacks what folds it",
                                       toString(kernels.route), impl.capacity));
  }
  const RouteKernels *kvOnly = impl.find(RouteKind::KvOnly);
  const RouteKernels *next = impl.find(impl.longRoute);
  if (kvOnly && kvOnly->usesBuffer &&
      (!next || next == kvOnly || (!next->usesBuffer && impl.drafts > 0)))
    return invalid(impl, fmt::format("route 'kv_only' needs the kernels of "
                                     "'{}' for rows that have folded",
                                     toString(impl.longRoute)));
  if (!impl.find(impl.route))
    return invalid(
        impl, fmt::format("route '{}' has no kernels", toString(impl.route)));
  return Status();
}

const RouteKernels &ProgramImpl::verifier(RouteKind chosen) const {
  const RouteKernels &kernels = *find(chosen);
  const RouteKernels *next = find(longRoute);
  return chosen == RouteKind::KvOnly && page > 0 && next && next->gpu &&
                 next->gpu->verify
             ? *next
             : kernels;
}

Result<Program> Program::create(ProgramImpl impl) {
  for (auto check : {checkSignature, checkKernels})
    if (Status status = check(impl); !status)
      return status;
  RouteKind route = impl.route;
  return Program(std::make_shared<const ProgramImpl>(std::move(impl)), route);
}

const Signature &Program::signature() const { return impl->signature; }

DeviceId Program::device() const {
  return impl->gpu ? impl->gpu->device.id() : DeviceId();
}

std::vector<RouteKind> Program::routes() const {
  std::vector<RouteKind> routes;
  for (const RouteKernels &kernels : impl->routes)
    routes.push_back(kernels.route);
  return routes;
}

Result<Program> Program::withRoute(RouteKind route) const {
  if (impl->find(route))
    return Program(impl, route);
  std::vector<std::string_view> names;
  for (RouteKind each : routes())
    names.push_back(toString(each));
  return Status(ErrorCode::NotFound,
                fmt::format("'{}' was not compiled for route '{}', only for {}",
                            impl->signature.name, toString(route),
                            fmt::join(names, ", ")));
}

int64_t Program::capacity() const { return impl->capacity; }
int64_t Program::crossover() const { return impl->crossover; }
bool Program::crossesOver() const {
  return chosen == RouteKind::KvOnly && !impl->foldsByChunk &&
         (device().kind == DeviceKind::Cpu || impl->page > 0);
}
int64_t Program::page() const { return impl->page; }
int64_t Program::drafts() const { return impl->drafts; }
bool Program::verifiesAtOnce() const {
  const RouteKernels &kernels = impl->verifier(chosen);
  return kernels.verify || (kernels.gpu && kernels.gpu->verify);
}
int64_t Program::chunk() const { return impl->chunk; }
bool Program::prefillsAtOnce() const {
  const RouteKernels &kernels = *impl->find(chosen);
  return kernels.prefillFold || kernels.prefillEntries ||
         (kernels.gpu && kernels.gpu->prefill);
}
bool Program::foldsByChunk() const { return impl->foldsByChunk; }
std::span<const TensorSpec> Program::fields() const { return impl->fields; }
int64_t Program::headGroup() const { return impl->headGroup; }
const std::string &Program::manifest() const { return impl->manifest; }
