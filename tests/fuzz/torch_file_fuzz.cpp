// SPDX-License-Identifier: MIT
// Input: a file of torch.save in either format. If the first byte is 'P' and the second is not 'K',
// the rest is a pickle that is put into a valid archive, so that checksums do not reject it first.
#include <cstddef>
#include <cstdint>
#include <string>

#include "../../src/tensor/torch_file_zip.h"
#include "../support/memory_file.h"
#include "finetune/base/error.h"
#include "finetune/tensor/torch_archive.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size >= 2 && data[0] == 'P' && data[1] != 'K') {
    finetune::testing::MemoryWriter writer;
    finetune::ZipWriter zip(writer);
    zip.add("archive/data.pkl", bytes.substr(1));
    for (const char* name : {"0", "1", "2", "3"}) {
      zip.add("archive/data/" + std::string(name), std::string(24, 'x'));
    }
    zip.finish();
    bytes = writer.content();
  }
  try {
    finetune::check_torch_file(finetune::testing::MemoryFile(bytes), "input");
  } catch (const finetune::Error&) {
  }
  return 0;
}
