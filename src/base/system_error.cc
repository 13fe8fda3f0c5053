// Errno values and their remedies.
#include "base/system_error.h"

#include <cctype>
#include <cerrno>
#include <system_error>

namespace cmforge {
namespace {

const char* Remedy(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG:
      return "check the path";
    case EACCES:
    case EPERM:
      return "change its permissions, or work as its owner";
    case EROFS:
      return "choose a place that can be written";
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "free some space and try again";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case ENOMEM:
      return "close other programs, or use --no-mmap";
    case ELOOP:
      return "its symbolic links go in a circle: name the file itself";
    case EIO:
      return "check the disk";
    default:
      return "check the file and its disk, then try again";
  }
}

}  // namespace

std::string SystemFault(int error) {
  std::string text = std::generic_category().message(error);
  // "Input/output error" starts a word, not a name: messages are lower case.
  if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1])) != 0)
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text.append(": ").append(Remedy(error));
}

}  // namespace cmforge
