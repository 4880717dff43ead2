/* SPDX-License-Identifier: Apache-2.0 */
/* Determines which NIXL has loaded the backend. libnixl exports no version. The version of a wheel is in the name of a
 * folder such as nixl_cu12-1.5.1.dist-info, next to the folder .nixl_cu12.mesonpy.libs, which contains libnixl.so. */
#include "nixl/version.h"

#include "nixl/tried.h"

#include <climits>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>

namespace hx
{

namespace
{

const char *const tried[] = {HX_TRIED_VERSIONS};

const char any_version[] = "HAWSER_NIXL_ANY_VERSION";

std::string parent_folder(const std::string &path)
{
    size_t at = path.rfind('/');
    return at == std::string::npos ? "" : path.substr(0, at);
}

/* Returns "nixl_cu12" for ".../.nixl_cu12.mesonpy.libs", else "". */
std::string wheel_name(const std::string &folder)
{
    static const char tail[] = ".mesonpy.libs";
    std::string name = folder.substr(folder.rfind('/') + 1);
    size_t at = name.find(tail);
    return name.size() > 1 && name[0] == '.' && at != std::string::npos ? name.substr(1, at - 1) : "";
}

/* Returns the VERSION in the folder name NAME-VERSION.dist-info below `site`, else "". */
std::string read_dist_info(const std::string &site, const std::string &name)
{
    static const char tail[] = ".dist-info";
    std::string version, head = name + "-";
    DIR *dir = opendir(site.c_str());
    if (!dir)
        return "";
    while (const dirent *e = readdir(dir)) {
        std::string entry = e->d_name;
        size_t at = entry.rfind(tail);
        if (entry.compare(0, head.size(), head) == 0 && at != std::string::npos && at > head.size() &&
            at + strlen(tail) == entry.size())
            version = entry.substr(head.size(), at - head.size());
    }
    closedir(dir);
    return version;
}

std::string list_tried()
{
    std::string all;
    for (const char *v : tried)
        all += (all.empty() ? "" : ", ") + std::string(v);
    return all;
}

std::string refuse(const std::string &what)
{
    return what + "; the HAWSER backend was tested with NIXL " + list_tried() + ": install one of these, or set " +
           any_version + "=1 to continue at your own risk";
}

} // namespace

std::string check_nixl_version(const void *caller)
{
    const char *any = getenv(any_version);
    if (any && strcmp(any, "1") == 0)
        return "";
    Dl_info info;
    char real[PATH_MAX];
    if (!dladdr(caller, &info) || !info.dli_fname || !realpath(info.dli_fname, real))
        return refuse("the library that loaded the backend is unknown");
    std::string folder = parent_folder(real), name = wheel_name(folder);
    std::string version = name.empty() ? "" : read_dist_info(parent_folder(folder), name);
    if (version.empty())
        return refuse(std::string("no metadata of a NIXL wheel was found for ") + real + ", so its version is unknown");
    for (const char *v : tried)
        if (version == v)
            return "";
    return refuse("NIXL " + version + " was not tested");
}

} // namespace hx
